"""flash-linear-attention on an NVIDIA GPU: parallel_attn and parallel_nsa with their gradients, compiled by Triton.

The calls and what is declared are those of fla_attn.py and fla_nsa.py, where the sources are. Wider here: bf16, which the interpreter
lacks, longer sequences, and gradients in half types. Widths are few, since Triton compiles and tunes its kernels for each.
"""

import sys
from pathlib import Path

import torch

import attncheck

sys.path.insert(0, str(Path(__file__).parent))
import fla_attn  # noqa: E402
import fla_nsa  # noqa: E402

ZOO = {"title": "fla on a GPU", "environments": ["fla-cuda"], "distribution": "flash-linear-attention", "needs": "cuda", "timeout": 120,
       "kernels": ["attention", "attention_grad", "selected", "selected_any_row", "selected_grad"],
       "properties": {"": ["agreement"]},
       "source": "https://github.com/fla-org/flash-linear-attention/tree/main/fla/ops"}
ATTENTION = ("dtype=fp16,bf16 layout=bshd,bhsd,packed q=kv dim=64,128 value_dim=64,128 kv_heads=1..2 group=1..2 window_right=0 align=top_left "
             "softcap=0 kv_length=none bias=none mask=none ")
SELECTED = ("q=kv dtype=fp16,bf16 dim=128 value_dim=128 group=16 kv_heads=1,2 block=16,32,64 count=1..16 sparse=2 mask=bool,uint8 "
            "beyond_q=0 beyond_kv=0 ")


@attncheck.kernel("attention", tensors="torch", device="cuda", features=ATTENTION + "outputs=out", precision=fla_attn.PRECISION)
def attention(query, key, value, cu_seqlens_q, cu_seqlens_kv, sink, scale, window_left):
    with torch.no_grad():
        return fla_attn.attend(query, key, value, cu_seqlens_q, sink, scale, window_left)


@attncheck.kernel("attention_grad", tensors="torch", device="cuda", features=ATTENTION + "lse=absent out=reference",
                  precision=fla_attn.PRECISION + " forward=own")
def attention_grad(dout, query, key, value, cu_seqlens_q, cu_seqlens_kv, sink, scale, window_left, dsink):
    return fla_attn.differentiate(dout, query, key, value, cu_seqlens_q, sink, scale, window_left, dsink)


@attncheck.kernel("nsa_selected_attention", tensors="torch", device="cuda", features=SELECTED + "outputs=attention_out",
                  precision=fla_nsa.PRECISION)
def selected(query, key, value, topk_indices, atten_mask, actual_seq_q_len, actual_seq_kv_len, scale_value, selected_block_size):
    return {"attention_out": fla_nsa.attend(query, key, value, topk_indices, list(actual_seq_q_len), list(actual_seq_kv_len), scale_value,
                                            selected_block_size)}


@attncheck.kernel("nsa_selected_attention", tensors="torch", device="cuda", features=SELECTED + "outputs=attention_out",
                  precision=fla_nsa.PRECISION)
def selected_any_row(query, key, value, topk_indices, atten_mask, actual_seq_q_len, actual_seq_kv_len, scale_value, selected_block_size):
    return {"attention_out": fla_nsa.attend(query, key, value, topk_indices, list(actual_seq_q_len), list(actual_seq_kv_len), scale_value,
                                            selected_block_size, any_row=True)}


@attncheck.kernel("nsa_selected_attention_grad", tensors="torch", device="cuda", features=SELECTED, precision=fla_nsa.PRECISION + " forward=own")
def selected_grad(query, key, value, attention_out_grad, topk_indices, atten_mask, actual_seq_q_len, actual_seq_kv_len, scale_value,
                  selected_block_size):
    return fla_nsa.differentiate(query, key, value, attention_out_grad, topk_indices, list(actual_seq_q_len), list(actual_seq_kv_len),
                                 scale_value, selected_block_size)
