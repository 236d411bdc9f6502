// The headers in use agree with signatures.h: compiled for what it asserts.
#include "properties/aclnn_adapter/signatures.h"

// Written when the build is configured: includes the operator headers that exist, and says
// CHECK(operator) for each operator they declare. Older headers lack some.
#include ATTNCHECK_DECLARED_OPERATORS
