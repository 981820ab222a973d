/* out = inputs . weight^T, or out += it, with a weight that was packed into panels (panels.h). */
#include "panels.h"

enum { ROWS_AT_ONCE = 128 }; /* of inputs: DEPTH columns of them stay in the second-level cache for all panels */

EXPORT void ITEM_KERNEL(matmul_panels)(const item *inputs, long input_stride, const item *panels, float *out,
                                       long out_stride, long num_rows, long num_inputs, long num_outputs, int accumulate) {
    begin_products();
    for (long row = 0; row < num_rows; row += ROWS_AT_ONCE)
        multiply_panels(panels, (struct rows){inputs + row * input_stride, input_stride, PANEL},
                        smaller_of(num_rows - row, ROWS_AT_ONCE), num_inputs, out + row * out_stride, out_stride,
                        num_outputs, accumulate);
    end_products();
}
