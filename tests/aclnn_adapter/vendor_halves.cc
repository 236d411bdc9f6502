// NsaCompress with one of its two phases, or with C++ names, as HAS_FIRST, HAS_SECOND and HAS_CXX_NAMES say. It is never
// called.
#ifndef HAS_CXX_NAMES
extern "C" {
#endif

#ifdef HAS_FIRST
__attribute__((visibility("default"))) int aclnnNsaCompressGetWorkspaceSize(const void*) { return 0; }
#endif
#ifdef HAS_SECOND
__attribute__((visibility("default"))) int aclnnNsaCompress(void*) { return 0; }
#endif

#ifndef HAS_CXX_NAMES
}
#endif
