// The program in Python: the case as JSON, then NumPy.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "properties/cli/emitted_case.h"
#include "properties/cli/emitted_text.h"

namespace attncheck::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHead = R"py("""{0}
One case of an attention kernel, by itself; bounds of the rounding class '{8}'. Write the kernel below and run: python THIS_FILE{10}"""
import base64, json, sys
import {7}numpy as np{1}
def kernel({2}):
    """Returns {3}."""
    raise NotImplementedError("call your kernel here")
DATA = json.loads(r'''{4}''')
TYPES = dict({5})
def numbers(text, type="f8"):
    return np.frombuffer(base64.b64decode(text), np.dtype(type)).copy()
{9}def argument(a):
    if not (isinstance(a, list) and a and isinstance(a[0], str)):
        return a
{6}arguments = {{name: argument(a) for name, a in DATA["arguments"].items()}}
np.seterr(all="ignore")
)py";

constexpr const char* kLaidOut = R"py(def laid_out(x, strides):  # in the memory order of the case
    far = [(n - 1) * s for n, s in zip(x.shape, strides)]
    memory = np.zeros(sum(map(abs, far)) + 1, x.dtype)[-sum(min(f, 0) for f in far):]
    out = np.lib.stride_tricks.as_strided(memory, x.shape, [s * x.itemsize for s in strides])
    return np.copyto(out, x) or out
)py";
constexpr const char* kStrided = R"py(    if len(a) > 3: return laid_out(numbers(a[2], TYPES[a[0]]).reshape(a[1]), a[3])
)py";
constexpr const char* kNumbers = R"py(    return numbers(a[2], TYPES[a[0]]).reshape(a[1])
)py";
/// Without numbers: the documented mask, True = hidden.
constexpr const char* kNumbersOrMask = R"py(    r, c = np.ogrid[:a[1][0], :a[1][-1]]  # without numbers: the documented mask, True = hidden
    return numbers(a[2], TYPES[a[0]]).reshape(a[1]) if a[2] else np.where(r < 2048, c > r, c >= 1024).astype(TYPES[a[0]])
)py";

/// Rows of the tensors that make a letter, [rows, heads, width]; and outputs back in their places.
constexpr const char* kRows = R"py(def places(side, letter):  # of the elements [row, head, channel] of the tensors that make a letter
    for name, heads, width, first in DATA[side].get(letter, []):
        yield name, np.array(first, int).reshape(-1, heads, 1) + np.arange(width)
def rows(letter):
    return np.concatenate([arguments[n].astype(float).reshape(-1)[at] for n, at in places("inputs", letter)], -1)
def store(letter, values):
    for name, at in places("places", letter):
        part = values[..., :at.shape[-1]]
        values, want[name] = values[..., at.shape[-1] * (values.shape[-1] > 1):], np.zeros(at.size)
        want[name][at] = np.broadcast_to(part, at.shape)
def softmax(t, n, keys, bias):  # of a row: logits, their slope, maximum and sum; limits where it sees nothing
    s = scale * (K[keys, n // group] @ Q[t, n])
    cap = np.tanh(s / softcap) if softcap else np.zeros(len(s))
    s = (softcap * cap if softcap else s) + bias
    m = np.append(s, sink[n]).max()
    return s, 1 - cap**2, *((-limit, limit) if m == -np.inf else (m, np.exp(s - m).sum() + np.exp(sink[n] - m)))
want, Q, K, V, (scale, softcap, group) = {}, rows("Q"), rows("K"), rows("V"), DATA["scale"]
heads, limit = Q.shape[1], float(np.finfo(np.float32).max)
sink = np.full(heads, -np.inf) if arguments.get("sink") is None else arguments["sink"].astype(float)
columns = [(r // heads, r % heads, np.array(keys, int), *more) for r, keys, *more in DATA["columns"]]
)py";

constexpr const char* kForward = R"py(O, top, total, lse = (np.zeros(Q.shape[:2] + (width,)) for width in (V.shape[2], 1, 1, 1))
for t, n, keys, bias, gain, _ in columns:
    s, _, m, l = softmax(t, n, keys, bias)
    top[t, n], total[t, n], lse[t, n] = m, l, -np.inf if m == -limit else m + np.log(l)
    O[t, n] = (np.exp(s - m) / l * gain) @ V[keys, n // group]
store("O", O), store("top", top), store("total", total), store("lse", lse)
)py";

/// {0}, {2}, {3}: statistics that are given; {1}: what a sink and a bias add.
constexpr const char* kBackward = R"py(dO, O{2} = map(rows, ("dO", "O"{3}))
dQ, dK, dV, dsink, dbias = map(np.zeros, (Q.shape, K.shape, V.shape, heads, DATA["bias"]))
for t, n, keys, bias, gain, place in columns:
    g, (s, slope, m, l), delta = n // group, softmax(t, n, keys, bias), dO[t, n] @ O[t, n]
{0}    p = np.exp(s - m) / l
    ds = p * (gain * (V[keys, g] @ dO[t, n]) - delta)
    dQ[t, n] = scale * (ds * slope) @ K[keys, g]
    np.add.at(dK, (keys, g), scale * np.outer(ds * slope, Q[t, n]))
    np.add.at(dV, (keys, g), np.outer(p * gain, dO[t, n]))
{1}store("dQ", dQ), store("dK", dK), store("dV", dV)
)py";
constexpr const char* kGivenPair = R"py(    m, l = top[t, n], total[t, n]
)py";
constexpr const char* kGivenLse = R"py(    m, l = (-limit, limit) if np.isneginf(lse[t, n]) else (lse[t, n], 1)
)py";
constexpr const char* kSinkGrad = R"py(    dsink[n] -= np.exp(sink[n] - np.ravel(m)[0]) / np.ravel(l)[0] * delta if sink[n] != -np.inf else 0
)py";
constexpr const char* kBiasGrad = R"py(    np.add.at(dbias, place, ds)
)py";

constexpr const char* kMerge = R"py(lses, parts = arguments["lses"].astype(float), arguments["parts"].astype(float)
top = lses.max(0, initial=-np.inf)
weight = np.exp(lses - np.where(np.isneginf(top), 0, top))
total = weight.sum(0)
live = np.where(np.isneginf(lses)[..., None], 0, parts)  # without a key: counts for nothing
out = (weight[..., None] * live).sum(0) / np.where(total == 0, 1, total)[..., None]
want = dict(out=out.reshape(-1), lse=(top + np.log(total)).reshape(-1))
)py";

/// Y_jnc = sum_r X_rnc W_rn over the tokens of block j.
/// What is expected as numbers, where the program has no equations.
constexpr const char* kValues = R"py(want = {n: numbers(v) for n, v in DATA["want"].items()}
)py";

constexpr const char* kCompress = R"py(X, W = arguments["input"].astype(float), arguments["weight"].astype(float)
Y = np.zeros((len(DATA["blocks"]), *X.shape[1:]))
for j, first in enumerate(DATA["blocks"]):
    Y[j] = np.einsum("rnc,rn->nc", X[first:first + len(W)], W)
want = dict(output=Y.reshape(-1))
)py";
constexpr const char* kCompressGrad =
    R"py(dY, X, W = (arguments[name].astype(float) for name in ("output_grad", "input", "weight"))
dX, dW = np.zeros(X.shape), np.zeros(W.shape)
for j, first in enumerate(DATA["blocks"]):
    dX[first:first + len(W)] += W[:, :, None] * dY[j]
    dW += np.einsum("rnc,nc->rn", X[first:first + len(W)], dY[j])
want = dict(input_grad=dX.reshape(-1), weight_grad=dW.reshape(-1))
)py";

constexpr const char* kTail = R"py(result = kernel(**{0})
result, wrong = result if isinstance(result, (tuple, list)) else [result], 0
for (name, (type, shape)), out in zip(DATA["outputs"].items(), result):
    if name in want:  # lists of blocks have no expected value
        got, bound = {1}.reshape(-1), numbers(DATA["bound"][name])
        bad = ~((abs(got - want[name]) <= bound) | np.isinf(bound) | (got == want[name]) | (np.isnan(want[name]) & np.isnan(got)))
        wrong += bad.sum()
        print(f"{{name}}: {{bad.sum()}} of {{bad.size}} elements wrong", *np.argwhere(bad.reshape(shape))[:1])
sys.exit(int(wrong > 0))
)py";

/// Through binary64, which holds every number of every type.
constexpr const char* kToTorch =
    R"py({n: torch.from_numpy(a.astype("f8")).to(getattr(torch, a.dtype.name)) if isinstance(a, np.ndarray) else a for n, a in arguments.items()})py";

std::string base64(const void* data, std::size_t size) {
    constexpr const char* kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto* const bytes = static_cast<const unsigned char*>(data);
    std::string out;
    for (std::size_t k = 0; k < size; k += 3) {
        const auto byte = [&](std::size_t i) { return i < size ? std::uint32_t{bytes[i]} : 0; };
        const std::uint32_t three = byte(k) << 16 | byte(k + 1) << 8 | byte(k + 2);
        for (int shift = 18; shift >= 0; shift -= 6) out += kDigits[three >> shift & 63];
    }
    const std::size_t pad = (3 - size % 3) % 3;
    std::fill_n(out.end() - static_cast<std::ptrdiff_t>(pad), pad, '=');
    return out;
}

std::string packed_bytes(const Tensor& tensor) {
    const std::size_t size = tensor.element_size(), total = tensor.elements();
    std::vector<unsigned char> bytes(total * size);
    for (std::size_t k = 0; k < total; ++k) std::memcpy(&bytes[k * size], &tensor.bits[k], size);
    return base64(bytes.data(), bytes.size());
}

/// ["fp16", [2,1,4], BASE64], and strides that are not those of contiguous elements; a mask of documented contents has null
/// for its numbers.
Json tensor_json(const Tensor& tensor, bool strides) {
    if (!tensor.present) return {};
    Json out{ref::dtype_name(tensor.type()), tensor.shape, tensor.shared_bytes ? Json() : Json(packed_bytes(tensor))};
    if (strides && is_laid_out(tensor) && !is_far(tensor)) out.push_back(tensor.strides);
    return out;
}

Json arguments_json(const Call& call, bool strides) {
    Json out = Json::object();
    for (const Tensor& tensor : call.tensors)
        if (!tensor.output) out[tensor.name] = tensor_json(tensor, strides);
    for (const HostArray& array : call.arrays)
        out[array.name] = array.present ? Json(array.values) : Json();
    for (const Text& text : call.texts) out[text.name] = text.value ? Json(*text.value) : Json();
    for (const Number& number : call.numbers) out[number.name] = number.value;
    for (const Real& real : call.reals) out[real.name] = real.value;
    return out;
}

/// {"Q": [["query", heads, width, [first element of row 0 head 0, ..]], ..], ..}
Json rows_json(const std::map<std::string, std::vector<EmittedRows>>& letters,
               const ref::AttentionShape& shape) {
    Json out = Json::object();
    for (const auto& [letter, parts] : letters)
        for (const EmittedRows& rows : parts) {
            const bool of_keys =
                letter == "K" || letter == "V" || letter == "dK" || letter == "dV";
            out[letter].push_back({rows.tensor, of_keys ? shape.kv_heads : shape.query_heads,
                                   rows.width, rows.first});
        }
    return out;
}

/// [[row * heads + head, [keys], [bias] or 0, [gain of dropout] or 1, [places in dbias]], ..]
Json columns_json(const EmittedAttention& attention) {
    Json out = Json::array();
    for (const EmittedAttention::Row& row : attention.rows) {
        Json keys = Json::array(), bias = Json::array(), gain = Json::array(), place = Json::array();
        for (const ref::KeyColumn& column : row.columns) {
            keys.push_back(column.key);
            bias.push_back(column.bias);
            gain.push_back(attention.gain(column));
            if (attention.bias_elements > 0) place.push_back(column.place);
        }
        out.push_back({row.number, keys, attention.has_bias ? bias : Json(0),
                       attention.keep_prob < 1 ? gain : Json(1), place});
    }
    return out;
}

Json data_of(const EmittedCase& made, bool strides) {
    Json out;
    out["arguments"] = arguments_json(made.call, strides);
    out["outputs"] = Json::object();
    for (const Tensor* tensor : made.outputs())
        out["outputs"][tensor->name] = {ref::dtype_name(tensor->type()), tensor->shape};
    for (const auto& [name, bound] : made.bounds)
        out["bound"][name] = base64(bound.data(), bound.size() * sizeof(double));
    if (made.compression) out["blocks"] = made.compression->first_token;
    for (const auto& [name, value] : made.values)
        out["want"][name] = base64(value.data(), value.size() * sizeof(double));
    if (!made.attention) return out;
    const EmittedAttention& attention = *made.attention;
    out["inputs"] = rows_json(attention.inputs, attention.shape);
    out["scale"] = Json::array({attention.scale, attention.softcap, attention.shape.group()});
    out["bias"] = attention.bias_elements;
    out["columns"] = columns_json(attention);
    out["places"] = rows_json(attention.outputs, attention.shape);
    return out;
}

std::string expectation_of(const EmittedCase& made) {
    if (made.compression) return made.compression->gradient ? kCompressGrad : kCompress;
    if (made.is_merge) return kMerge;
    if (!made.attention) return kValues;
    const EmittedAttention& attention = *made.attention;
    if (!attention.gradient) return std::string(kRows) + kForward;
    const bool has_pair = attention.statistics == Statistics::pair,
               has_lse = attention.statistics == Statistics::lse;
    const char* const given = has_pair ? kGivenPair : has_lse ? kGivenLse : "";
    const char* const names = has_pair ? ", top, total" : has_lse ? ", lse" : "";
    const char* const letters = has_pair ? ", \"top\", \"total\"" : has_lse ? ", \"lse\"" : "";
    std::string sums, stored;
    for (const std::string& sum : attention.sums) sums += sum == "dsink" ? kSinkGrad : kBiasGrad;
    for (const std::string& sum : attention.sums)
        stored += fmt::format("{}{}={}", stored.empty() ? "want |= dict(" : ", ", sum, sum);
    if (!stored.empty()) stored += ")\n";
    return kRows + fmt::format(fmt::runtime(kBackward), given, sums, names, letters) + stored;
}

/// The types that the case has, as NumPy names them.
std::string types_of(const EmittedCase& made) {
    constexpr std::pair<ref::Dtype, const char*> kNames[] = {
        {ref::Dtype::fp32, "\"f4\""},
        {ref::Dtype::fp16, "\"f2\""},
        {ref::Dtype::int32, "\"i4\""},
        {ref::Dtype::uint8, "\"u1\""},
        {ref::Dtype::boolean, "\"?\""},
        {ref::Dtype::bf16, "ml_dtypes.bfloat16"},
        {ref::Dtype::fp8_e5m2, "ml_dtypes.float8_e5m2"},
        {ref::Dtype::fp8_e4m3fn, "ml_dtypes.float8_e4m3fn"}};
    std::vector<std::string> words;
    for (const auto& [type, name] : kNames)
        if (std::ranges::any_of(made.call.tensors, [type = type](const Tensor& t) { return t.type() == type; }))
            words.push_back(fmt::format("{}={}", ref::dtype_name(type), name));
    return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::string emitted_python(const EmittedCase& made, bool torch) {
    const bool strides = !torch;  // which has no negative ones
    const Json data = data_of(made, strides);
    const bool has_strides = std::ranges::any_of(data["arguments"], [](const Json& one) {
        return one.is_array() && one.size() == 4 && one[0].is_string();
    });
    std::string names, outputs;
    for (const auto& [name, value] : data["arguments"].items()) names += (names.empty() ? "" : ", ") + name;
    for (const auto& [name, value] : data["outputs"].items())
        outputs += fmt::format("{}{} {} {}", outputs.empty() ? "" : ", ", name, value[0].get<std::string>(),
                               value[1].dump());
    const bool has_mask = std::ranges::any_of(
        made.call.tensors, [](const Tensor& t) { return t.present && t.shared_bytes != nullptr; });
    const char* const got = torch ? "out.detach().cpu().double().numpy()" : "np.asarray(out, float)";
    const std::string types = types_of(made);
    return fmt::format(fmt::runtime(kHead), made.line, torch ? ", torch" : "", names, outputs,
                       data.dump(), types, (has_strides ? kStrided : "") + std::string(has_mask ? kNumbersOrMask : kNumbers),
                       types.find("ml_dtypes") == types.npos ? "" : "ml_dtypes, ", made.rounding,
                       has_strides ? kLaidOut : "", left_out_text(made, strides)) +
           expectation_of(made) +
           fmt::format(fmt::runtime(kTail), torch ? kToTorch : "arguments", got);
}

}  // namespace attncheck::properties
