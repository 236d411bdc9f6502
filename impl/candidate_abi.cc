#include <exception>
#include <new>
#include <string>

#include "attncheck/candidate.h"
#include "impl/validated_entry_points.h"
#include "impl/operators/attention/attention.h"
#include "impl/operators/attention/validate.h"
#include "impl/operators/attention_decode/attention_decode.h"
#include "impl/operators/attention_decode/validate.h"
#include "impl/operators/attention_merge/attention_merge.h"
#include "impl/operators/attention_merge/validate.h"
#include "impl/operators/flash_attention/flash_attention.h"
#include "impl/operators/flash_attention/validate.h"
#include "impl/kernels/instruction_set.h"
#include "impl/operators/nsa_compress/nsa_compress.h"
#include "impl/operators/nsa_compress_attention/nsa_compress_attention.h"
#include "impl/operators/nsa_compress_attention/validate.h"
#include "impl/operators/nsa_compress/validate.h"
#include "impl/operators/nsa_selected_attention/nsa_selected_attention.h"
#include "impl/operators/nsa_selected_attention/validate.h"

namespace attncheck::impl {
namespace {

// Validate, then run; no exception leaves the C interface.
template <class Args, class Run>
int guarded(const Args* args, MaybeRejection (*validate)(const Args*), const Run& run) noexcept {
    try {
        if (MaybeRejection rejection = validate(args)) {
            set_last_error_message(std::move(rejection->message));
            return rejection->status;
        }
        run(*args);
        return ATTNCHECK_OK;
    } catch (const std::exception& failure) {
        try {
            set_last_error_message(failure.what());
        } catch (...) {  // out of memory for the message: the status alone has to do
        }
    } catch (...) {
    }
    return ATTNCHECK_ERR_INTERNAL;
}

/// An operator on kernels chosen for the instruction set; choosing may fail, too.
template <class Args, class Kernels>
int guarded_call(const Args* args, MaybeRejection (*validate)(const Args*),
                 void (*run)(const Args&, const Kernels&), const Kernels& (*kernels)()) noexcept {
    return guarded(args, validate, [&](const Args& valid) { run(valid, kernels()); });
}

/// An operator that uses no kernel.
template <class Args>
int guarded_call(const Args* args, MaybeRejection (*validate)(const Args*),
                 void (*run)(const Args&)) noexcept {
    return guarded(args, validate, run);
}

template <auto entered, auto validated>
struct Untyped;
template <class Args, int (*entered)(const Args*), MaybeRejection (*validated)(const Args*)>
struct Untyped<entered, validated> {
    static int enter(const void* args) { return entered(static_cast<const Args*>(args)); }
    static MaybeRejection validate(const void* args) {
        return validated(static_cast<const Args*>(args));
    }
};

template <auto entered, auto validated>
constexpr EntryPoint entry(const char* name) {
    return {name, Untyped<entered, validated>::enter, Untyped<entered, validated>::validate};
}

}  // namespace

std::span<const EntryPoint> entry_points() {
    static constexpr EntryPoint kAll[] = {
        entry<attncheck_nsa_compress, validate_nsa_compress>("nsa_compress"),
        entry<attncheck_nsa_compress_grad, validate_nsa_compress_grad>("nsa_compress_grad"),
        entry<attncheck_nsa_selected_attention, validate_nsa_selected_attention>(
            "nsa_selected_attention"),
        entry<attncheck_nsa_selected_attention_grad, validate_nsa_selected_attention_grad>(
            "nsa_selected_attention_grad"),
        entry<attncheck_nsa_compress_attention, validate_nsa_compress_attention>(
            "nsa_compress_attention"),
        entry<attncheck_flash_attention_score, validate_flash_attention_score>(
            "flash_attention_score"),
        entry<attncheck_flash_attention_score_grad, validate_flash_attention_score_grad>(
            "flash_attention_score_grad"),
        entry<attncheck_attention, validate_attention>("attention"),
        entry<attncheck_attention_grad, validate_attention_grad>("attention_grad"),
        entry<attncheck_attention_decode, validate_attention_decode>("attention_decode"),
        entry<attncheck_attention_merge, validate_attention_merge>("attention_merge")};
    return kAll;
}

}  // namespace attncheck::impl

extern "C" {

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }

const char* attncheck_candidate_name(void) {
    static const std::string name = [] {
        std::string set;
        try {
            set = attncheck::impl::default_instruction_set().name;
        } catch (const std::exception& failure) {  // every operator will fail with this message
            set = failure.what();
        }
        return "attncheck built-in 0.1 (" + set + ")";
    }();
    return name.c_str();
}

const char* attncheck_precision(void) { return "order=fixed"; }

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_nsa_compress, impl::nsa_compress,
                              impl::default_kernels);
}

int attncheck_nsa_compress_grad(const attncheck_nsa_compress_grad_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_nsa_compress_grad, impl::nsa_compress_grad,
                              impl::default_kernels);
}

int attncheck_nsa_selected_attention(const attncheck_nsa_selected_attention_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_nsa_selected_attention,
                              impl::nsa_selected_attention, impl::default_attention_kernels);
}

int attncheck_nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_nsa_selected_attention_grad,
                              impl::nsa_selected_attention_grad, impl::default_attention_kernels);
}

int attncheck_nsa_compress_attention(const attncheck_nsa_compress_attention_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_nsa_compress_attention,
                              impl::nsa_compress_attention, impl::default_attention_kernels);
}

int attncheck_flash_attention_score(const attncheck_flash_attention_score_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_flash_attention_score,
                              impl::flash_attention_score, impl::default_attention_kernels);
}

int attncheck_flash_attention_score_grad(const attncheck_flash_attention_score_grad_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_flash_attention_score_grad,
                              impl::flash_attention_score_grad, impl::default_attention_kernels);
}

int attncheck_attention(const attncheck_attention_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_attention, impl::attention,
                              impl::default_attention_kernels);
}

int attncheck_attention_grad(const attncheck_attention_grad_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_attention_grad, impl::attention_grad,
                              impl::default_attention_kernels);
}

int attncheck_attention_decode(const attncheck_attention_decode_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_attention_decode, impl::attention_decode,
                              impl::default_attention_kernels);
}

int attncheck_attention_merge(const attncheck_attention_merge_args* args) {
    namespace impl = attncheck::impl;
    return impl::guarded_call(args, impl::validate_attention_merge, impl::attention_merge);
}

}  // extern "C"
