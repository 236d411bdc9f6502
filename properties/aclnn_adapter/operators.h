// Which operators the opened libraries have.
#pragma once

namespace attncheck::aclnn_adapter {

bool has_nsa_compress();
bool has_nsa_compress_grad();
bool has_nsa_selected_attention();
bool has_nsa_selected_attention_grad();
bool has_nsa_compress_attention();
bool has_flash_attention_score();       ///< any variant
bool has_flash_attention_score_grad();  ///< any variant

}  // namespace attncheck::aclnn_adapter
