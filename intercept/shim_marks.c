#include "intercept/shim_internal.h"
void tally_request_begin(void);
__attribute__((visibility("default"))) void tally_request_begin(void)
{
}
