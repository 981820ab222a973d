/* cross_entropy.c, with what is only multiplied in bfloat16. */
#define ITEMS_BF16
#include "cross_entropy.c"
