// The program in Python. Attention is computed from its definition in binary64 over the pairs of a
// query and a key that the case has; statistics and gradients as ref/attention/dense_attention.h.
#include <fmt/format.h>

#include "properties/cli/emitted_text.h"

namespace attncheck::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHead = R"py("""{0}

One case of an attention kernel, by itself. Write the kernel below and run: python THIS_FILE"""
import base64, json, sys
import ml_dtypes, numpy as np
{1}def kernel({2}):
    """Returns {3}."""
    raise NotImplementedError("call your kernel here")
DATA = json.loads(r'''{4}''')
TYPES = dict(fp32="f4", fp16="f2", int32="i4", uint8="u1", bool="?", bf16=ml_dtypes.bfloat16,
             fp8_e5m2=ml_dtypes.float8_e5m2, fp8_e4m3fn=ml_dtypes.float8_e4m3fn)
def numbers(text, type="f8"):
    return np.frombuffer(base64.b64decode(text), np.dtype(type)).copy()
def argument(a):
    if not (isinstance(a, list) and a and isinstance(a[0], str)):
        return a
    r, c = np.ogrid[:a[1][0], :a[1][-1]]  # without numbers: the documented mask, True = hidden
    return numbers(a[2], TYPES[a[0]]).reshape(a[1]) if a[2] else np.where(r < 2048, c > r, c >= 1024).astype(TYPES[a[0]])
arguments = {{name: argument(a) for name, a in DATA["arguments"].items()}}
)py";

constexpr const char* kWanted = R"py(want = {name: numbers(text) for name, text in DATA["want"].items()}
)py";

/// Rows of the tensors that make a letter, [rows, heads, width]; and outputs back in their places.
constexpr const char* kRows = R"py(
def places(letter):  # of the elements [row, head, channel] of the tensors that make a letter
    for name in DATA["parts"].get(letter, []):
        heads, width, first = DATA["rows"][name]
        yield name, np.array(first, int).reshape(-1, heads, 1) + np.arange(width)
def rows(letter):
    return np.concatenate([arguments[name].astype(float).reshape(-1)[at] for name, at in places(letter)], -1)
def store(letter, values):
    for name, at in places(letter):
        part = values[..., :at.shape[-1]]
        values, want[name] = values[..., at.shape[-1] * (values.shape[-1] > 1):], np.zeros(at.size)
        want[name][at] = np.broadcast_to(part, at.shape)
want, Q, K, V, group, scale = {}, rows("q"), rows("k"), rows("v"), DATA["group"], DATA["scale"]
)py";

constexpr const char* kForward = R"py(O, top, total = (np.zeros(Q.shape[:2] + (width,)) for width in (V.shape[2], 1, 1))
for t, n, keys, bias, gain in DATA["columns"]:
    g, limit = n // group, float(np.finfo(np.float32).max)
    top[t, n], total[t, n] = -limit, limit  # of a row that sees no key
    if keys:
        s = scale * (K[keys, g] @ Q[t, n]) + bias
        top[t, n] = s.max()
        p = np.exp(s - s.max())
        total[t, n] = p.sum()
        O[t, n] = (p / p.sum() * gain) @ V[keys, g]
store("attention_out", O), store("softmax_max", top), store("softmax_sum", total)
)py";

constexpr const char* kBackward = R"py(dO, O, top, total = rows("do"), rows("o"), rows("softmax_max"), rows("softmax_sum")
dQ, dK, dV = np.zeros(Q.shape), np.zeros(K.shape), np.zeros(V.shape)
for t, n, keys, bias, gain in DATA["columns"]:
    g = n // group
    if keys:
        p = np.exp(scale * (K[keys, g] @ Q[t, n]) + bias - top[t, n, 0]) / total[t, n, 0]
        ds = p * (gain * (V[keys, g] @ dO[t, n]) - dO[t, n] @ O[t, n])
        dQ[t, n] = scale * ds @ K[keys, g]
        np.add.at(dK, (keys, g), scale * np.outer(ds, Q[t, n]))
        np.add.at(dV, (keys, g), np.outer(p * gain, dO[t, n]))
store("dq", dQ), store("dk", dK), store("dv", dV)
)py";

constexpr const char* kTail = R"py({0}result = kernel(**given)
result, wrong = result if isinstance(result, (tuple, list)) else [result], 0
for (name, (type, shape)), out in zip(DATA["outputs"].items(), result):
    if name in want:  # lists of blocks have no expected value
        got, bound = {1}.reshape(-1), numbers(DATA["bound"][name])
        with np.errstate(invalid="ignore"):
            bad = ~((abs(got - want[name]) <= bound) | (~np.isfinite(want[name]) & ~np.isfinite(got)))
        wrong += bad.sum()
        print(f"{{name}}: {{bad.sum()}} of {{bad.size}} elements wrong", *np.argwhere(bad.reshape(shape))[:1])
sys.exit(int(wrong > 0))
)py";

constexpr const char* kToTorch =
    R"py(BITS = {"bfloat16": np.int16, "float8_e5m2": np.uint8, "float8_e4m3fn": np.uint8}
def tensor(a):
    t = torch.from_numpy(a.view(BITS[a.dtype.name]) if a.dtype.name in BITS else a)
    return t.view(getattr(torch, a.dtype.name)) if a.dtype.name in BITS else t
given = {name: tensor(a) if isinstance(a, np.ndarray) else a for name, a in arguments.items()}
)py";

}  // namespace

std::string emitted_python(const Json& made, bool torch) {
    std::string names, outputs;
    for (const auto& [name, value] : made["arguments"].items()) names += (names.empty() ? "" : ", ") + name;
    for (const auto& [name, value] : made["outputs"].items())
        outputs += fmt::format("{}{} {} {}", outputs.empty() ? "" : ", ", name, value[0].get<std::string>(),
                               value[1].dump());
    Json data = made;
    data.erase("case");
    std::string text = fmt::format(fmt::runtime(kHead), made["case"].get<std::string>(),
                                   torch ? "import torch\n" : "", names, outputs, data.dump());
    if (made.contains("want"))
        text += kWanted;
    else
        text += std::string(kRows) + (made["gradient"].get<bool>() ? kBackward : kForward);
    const char* const got = torch ? "out.detach().cpu().double().numpy()" : "np.asarray(out, float)";
    return text + fmt::format(fmt::runtime(kTail), torch ? kToTorch : "given = arguments\n", got);
}

}  // namespace attncheck::properties
