/* The gradient of a weight: a product over all positions (outer.h). */
#include "outer.h"

EXPORT void ITEM_KERNEL(outer_panels)(const item *rows, long stride, const item *panels, long num_rows, long num_columns,
                                      long num_panels, item *tiles, float *out) {
    begin_products();
    multiply_outer(rows, stride, panels, num_rows, num_rows, num_columns, num_panels, tiles, out, 0);
    end_products();
}
