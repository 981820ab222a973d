/* The whole-stack kernel against plain loops in double, without Python: for machines that run no tests of ours.
 *
 * Compiled with the kernels' sources for one instruction set (KERNEL_ISA) and run by scripts/test_aarch64.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../elmokit/kernels/src/pack.c"
#include "../../elmokit/kernels/src/stack.c"

static float *draw(long count, float scale) {
    float *values = malloc((size_t)(count ? count : 1) * sizeof *values);
    for (long at = 0; at < count; at++) values[at] = scale * (float)(2.0 * rand() / RAND_MAX - 1.0);
    return values;
}

/* Rows of gates by blocks of PANEL cells, as elmokit/kernels/stack.py orders them. */
static float *by_blocks(const float *gates, long cells, long width) {
    const long blocks = (cells + PANEL - 1) / PANEL;
    float *found = calloc((size_t)(blocks * BLOCK * width), sizeof *found);
    for (long gate = 0; gate < GATES; gate++)
        for (long cell = 0; cell < cells; cell++)
            memcpy(found + (cell / PANEL * BLOCK + gate * PANEL + cell % PANEL) * width,
                   gates + (gate * cells + cell) * width, (size_t)width * sizeof *found);
    return found;
}

static struct matrix pack_exact(const float *rows, long outputs, long inputs) {
    float *panels = malloc((size_t)((outputs + PANEL - 1) / PANEL * PANEL * inputs) * sizeof *panels);
    KERNEL(pack_rows)(rows, inputs, outputs, inputs, panels, inputs, 0, 1);
    return (struct matrix){panels, NULL};
}

/* As quantize and quantize_to_bytes of elmokit/kernels/packed.py do, `group` columns side by side; puts the rounded numbers
 * in place of the exact ones. */
static struct matrix pack_int8(float *rows, long outputs, long inputs, long group, int offset) {
    const long tiles = (outputs + TILE - 1) / TILE, slices = (inputs + SLICE - 1) / SLICE;
    const size_t size = (size_t)(tiles * TILE * (inputs + slices * group));
    int8_t *packed = malloc(size), *slice = packed;
    float *scales = malloc((size_t)(slices * tiles * TILE) * sizeof *scales);
    memset(packed, offset, size);
    for (long s = 0; s < slices; s++) {
        const long columns = smaller_of(inputs - s * SLICE, SLICE), groups = (columns + group - 1) / group;
        for (long o = 0; o < tiles * TILE; o++) {
            float *row = rows + o * inputs + s * SLICE, most = 0;
            for (long k = 0; o < outputs && k < columns; k++) most = fmaxf(most, fabsf(row[k]));
            const float scale = scales[s * tiles * TILE + o] = most > 0 ? most / 127 : 1;
            for (long k = 0; o < outputs && k < columns; k++) {
                const int rounded = (int)lrintf(row[k] / scale);
                slice[((o / TILE * groups + k / group) * TILE + o % TILE) * group + k % group] =
                    (int8_t)(uint8_t)(rounded + offset);
                row[k] = (float)rounded * scale;
            }
        }
        slice += tiles * groups * group * TILE;
    }
    return (struct matrix){packed, scales};
}

/* As pack_bf16 of elmokit/kernels/packed.py does; likewise. */
static struct matrix pack_bf16(float *rows, long outputs, long inputs) {
    const long tiles = (outputs + TILE - 1) / TILE, slices = (inputs + SLICE - 1) / SLICE;
    uint16_t *packed = calloc((size_t)(tiles * TILE * (inputs + slices)), sizeof *packed), *slice = packed;
    for (long s = 0; s < slices; s++) {
        const long columns = smaller_of(inputs - s * SLICE, SLICE), pairs = (columns + 1) / 2;
        for (long o = 0; o < outputs; o++)
            for (long k = 0; k < columns; k++) {
                float *value = rows + o * inputs + s * SLICE + k;
                const uint16_t rounded = to_bf16(*value);
                const uint32_t bits = (uint32_t)rounded << 16;
                slice[((o / TILE * pairs + k / 2) * TILE + o % TILE) * 2 + k % 2] = rounded;
                memcpy(value, &bits, sizeof bits);
            }
        slice += tiles * pairs * 2 * TILE;
    }
    return (struct matrix){packed, NULL};
}

static struct matrix pack(int form, float *rows, long outputs, long inputs) {
    switch (form) {
        case INT8: return pack_int8(rows, outputs, inputs, 2, 0);
        case BF16: return pack_bf16(rows, outputs, inputs);
        case BYTES: return pack_int8(rows, outputs, inputs, 4, OFFSET);
        default: return pack_exact(rows, outputs, inputs);
    }
}

static double squeeze(double x) { return 1 / (1 + exp(-x)); }

static double limited(double x, double clip) { return x > clip ? clip : x < -clip ? -clip : x; }

/* Both layers of one row, step by step; rows of gates are ordered by blocks. */
static void read_row(const struct stack *job, float *const weights[][4], long row, long length, const float *tokens,
                     double *found) {
    const long width = job->width, cells = job->num_cells;
    double *h = malloc((size_t)width * sizeof *h), *c = malloc((size_t)cells * sizeof *c);
    double *m = malloc((size_t)cells * sizeof *m), *x = malloc((size_t)(length * width) * sizeof *x);
    for (long at = 0; at < length * width; at++) x[at] = tokens[at];
    for (long layer = 0; layer < job->num_layers; layer++) {
        const float *input = weights[layer][0], *recurrent = weights[layer][1], *projection = weights[layer][2];
        for (long k = 0; k < width; k++) h[k] = job->hidden[(layer * job->num_rows + row) * width + k];
        for (long k = 0; k < cells; k++) c[k] = job->cells[(layer * job->num_rows + row) * cells + k];
        for (long t = 0; t < length; t++) {
            for (long cell = 0; cell < cells; cell++) {
                double gate[GATES];
                for (long g = 0; g < GATES; g++) {
                    const long at = cell / PANEL * BLOCK + g * PANEL + cell % PANEL;
                    gate[g] = weights[layer][3][at];
                    for (long k = 0; k < width; k++)
                        gate[g] += input[at * width + k] * x[t * width + k] + recurrent[at * width + k] * h[k];
                }
                c[cell] = limited(squeeze(gate[1]) * c[cell] + squeeze(gate[0]) * tanh(gate[3]), job->cell_clip);
                m[cell] = squeeze(gate[2]) * tanh(c[cell]);
            }
            for (long k = 0; k < width; k++) {
                h[k] = 0;
                for (long cell = 0; cell < cells; cell++) h[k] += projection[k * cells + cell] * m[cell];
                h[k] = limited(h[k], job->proj_clip);
            }
            for (long k = 0; k < width; k++) {
                x[t * width + k] = h[k] + (layer ? x[t * width + k] : 0);
                found[(layer * length + t) * width + k] = x[t * width + k];
            }
        }
    }
    free(h), free(c), free(m), free(x);
}

static double compare(long cells, long width, long num_rows, long length, int form) {
    enum { LAYERS = 2 };
    const long blocks = (cells + PANEL - 1) / PANEL, positions = num_rows * length;
    struct layer_weights layers[LAYERS];
    float *weights[LAYERS][4];
    for (long layer = 0; layer < LAYERS; layer++) {
        const float scale = 1 / sqrtf((float)width);
        for (long part = 0; part < 2; part++) weights[layer][part] = by_blocks(draw(4 * cells * width, scale), cells, width);
        weights[layer][2] = draw(width * cells, 1 / sqrtf((float)cells));
        weights[layer][3] = by_blocks(draw(4 * cells, 1), cells, 1);
        struct matrix *to[] = {&layers[layer].input, &layers[layer].recurrent, &layers[layer].projection};
        for (long part = 0; part < 3; part++) {
            const long outputs = part < 2 ? blocks * BLOCK : width, inputs = part < 2 ? width : cells;
            *to[part] = pack(form, weights[layer][part], outputs, inputs);
        }
        layers[layer].bias = weights[layer][3];
    }
    int64_t sizes[64], order[1024];
    for (long t = 0; t < length; t++) sizes[t] = num_rows;
    for (long p = 0; p < positions; p++) order[p] = p % num_rows * length + p / num_rows;
    struct stack job = {sizes, order, length, num_rows, width, cells, LAYERS, width, positions * width, width, 1,
                        form, 0.5f, 0.4f, layers, draw(positions * width, 1), NULL, NULL, NULL, NULL};
    job.outputs = draw(LAYERS * positions * width, 0);
    job.hidden = draw(LAYERS * num_rows * width, 0.3f);
    job.cells = draw(LAYERS * num_rows * cells, 0.3f);
    job.room = malloc((size_t)KERNEL(stack_room)(&job) * sizeof(float));
    double *expected = malloc((size_t)(LAYERS * positions * width) * sizeof *expected), worst = 0;
    for (long row = 0; row < num_rows; row++)
        read_row(&job, weights, row, length, job.tokens + row * length * width, expected + row * LAYERS * length * width);
    KERNEL(stack_forward)(&job);
    for (long row = 0; row < num_rows; row++)
        for (long layer = 0; layer < LAYERS; layer++)
            for (long at = 0; at < length * width; at++) {
                const float found = job.outputs[(layer * positions + row * length) * width + at];
                const double off = fabs(found - expected[(row * LAYERS + layer) * length * width + at]);
                worst = off > worst || off != off ? off : worst;
            }
    return worst;
}

int main(void) {
    const long shapes[][4] = {{16, 16, 1, 3}, {37, 19, 5, 4}, {64, 32, 70, 2}, {5, 3, 2, 9}, {530, 40, 3, 2}};
    const char *names[] = {"fp32", "int8", "bf16", "bytes"};
    const double most[] = {1e-5, 1e-4, 3e-3, 1e-2};
    int failed = 0;
    for (unsigned index = 0; index < sizeof shapes / sizeof *shapes; index++)
        for (int form = EXACT; form <= BYTES; form++) {
            const long *shape = shapes[index];
            const double worst = compare(shape[0], shape[1], shape[2], shape[3], form);
            printf("%s %ld cells, %ld wide, %ld rows, %ld steps: %.1e\n", names[form], shape[0], shape[1], shape[2],
                   shape[3], worst);
            if (!(worst < most[form])) failed = 1;
        }
    return failed;
}
