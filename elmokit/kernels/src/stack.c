/* All LSTM layers of one direction, all steps of a packed batch, in one call, without anything saved for a gradient.
 *
 * Packed positions are time-major, rows by falling length: step t is the next batch_sizes[t] positions. Position p is
 * row order[p] of the tokens and of the outputs. Step t of one row in a layer, with x its input and h', c' the row's
 * output and cell of the step before:
 *
 *     i, f, o, j = W x + R h' + bias       c, m as in cell.h       h = clip(V m)       output = h, or h + x with a skip
 *
 * W and R are in panels of 16 outputs, blocks of 16 cells with their four gates side by side, (blocks, 4). W x is computed
 * for several short steps at once, since each product reads all of W; for a step with many rows, block by block beside
 * R h'. Either way the numbers are the same: no sum depends on the other rows.
 *
 * In eight bits the inputs of each product are quantized row by row, to sixteen bits (int8.h) or to eight (bytes.h); in
 * bfloat16 (bf16.h) they are rounded.
 */
#include "bf16.h"
#include "bytes.h"
#include "cell.h"
#include "int8.h"
#include "panels.h"

enum { EXACT, INT8, BF16, BYTES }; /* forms of products, as in elmokit/kernels/stack.py */

enum {
    GATES = 4,
    BLOCK = GATES * PANEL, /* gates of one block of cells */
    FEW_ROWS = 4,          /* most rows of a step whose W x is computed ahead */
    POSITIONS = 64,        /* most positions whose W x is computed at once */
    GROUP = 128            /* most rows of a step at once: their inputs stay in the second-level cache */
};

/* A matrix: panels of float32, tiles of eight bits with their scales, (slices, outputs), or tiles of bfloat16. Which of
 * the two layouts of eight bits it has depends on the form. */
struct matrix {
    const void *packed;
    const float *scales; /* of eight bits */
};

struct layer_weights {
    struct matrix input, recurrent, projection; /* projection.packed is NULL if there is none */
    const float *bias;                          /* (blocks, 4, PANEL) */
};

struct stack {
    const int64_t *batch_sizes, *order; /* (steps), (positions) */
    int64_t num_steps, num_rows, width, num_cells, num_layers;
    int64_t token_stride, layer_stride, output_stride; /* in numbers */
    int64_t has_skip, precision;
    float cell_clip, proj_clip; /* NaN: none */
    const struct layer_weights *layers;
    const float *tokens;
    float *outputs; /* layer l of position p at outputs + l * layer_stride + order[p] * output_stride */
    float *hidden;  /* (layers, rows, width): where rows start, then where they ended */
    float *cells;   /* (layers, rows, cells), likewise */
    float *room;    /* stack_room numbers */
};

/* What a layer works with; parts of the room. */
struct work {
    const struct stack *job;
    const struct layer_weights *weights;
    long layer, blocks, cells; /* cells: blocks * PANEL */
    int precision;
    float *hidden;             /* (rows, width) */
    float *inputs;             /* (positions at once, width): x */
    float *gates;              /* (blocks, positions at once, BLOCK), or one block */
    float *memory;             /* (blocks, rows, PANEL): c */
    float *squashed;           /* m of a group: (blocks, rows, PANEL), or (rows, cells) where m is rounded */
    struct quantized x, h, m;  /* SLICE numbers for each of (slices, rows), or struct byte_row */
    float *projected;          /* (rows, panels of width * PANEL) */
};

/* Rows to multiply with, as they lie and quantized. */
struct operand {
    struct rows rows;
    struct quantized quantized;
    long depth, most_rows; /* of a slice */
};

INLINE long round_up(long count, long step) { return (count + step - 1) / step * step; }

INLINE long positions_at_once(const struct stack *job) {
    const long rows = job->num_rows < GROUP ? job->num_rows : GROUP;
    return rows > POSITIONS ? rows : POSITIONS;
}

/* The gates' room is whole for positions that are computed ahead, one block for a group. */
INLINE long gates_room(const struct stack *job) {
    const long ahead = round_up(job->num_cells, PANEL) * GATES * POSITIONS;
    return ahead > GROUP * BLOCK ? ahead : GROUP * BLOCK;
}

/* Numbers that `depth` columns of `rows` quantized rows take, scales included, in float32. */
INLINE long quantized_room(long rows, long depth) {
    const long slices = (depth + SLICE - 1) / SLICE;
    return slices * rows * (SLICE / 2 + 1);
}

INLINE struct quantized take_quantized(float **room, long rows, long depth) {
    const long slices = (depth + SLICE - 1) / SLICE;
    float *scales = *room;
    int16_t *values = (int16_t *)(scales + slices * rows);
    *room += quantized_room(rows, depth);
    return (struct quantized){values, scales};
}

INLINE float *take(float **room, long count) {
    float *taken = *room;
    *room += round_up(count, 16);
    return taken;
}

EXPORT int64_t KERNEL(stack_room)(const struct stack *job) {
    const long most = positions_at_once(job), cells = round_up(job->num_cells, PANEL);
    return 16 * 8 + most * job->width + gates_room(job) + cells * job->num_rows + cells * GROUP +
           2 * quantized_room(most, job->width) + quantized_room(GROUP, job->num_cells) +
           GROUP * round_up(job->width, PANEL);
}

static struct work begin_layer(const struct stack *job, long layer) {
    const long most = positions_at_once(job), cells = round_up(job->num_cells, PANEL);
    float *room = job->room;
    struct work work = {.job = job, .weights = job->layers + layer, .layer = layer};
    work.blocks = cells / PANEL, work.cells = cells;
    work.precision = (int)job->precision;
    work.hidden = job->hidden + layer * job->num_rows * job->width;
    work.inputs = take(&room, most * job->width);
    work.gates = take(&room, gates_room(job));
    work.memory = take(&room, cells * job->num_rows);
    work.squashed = take(&room, cells * GROUP);
    work.projected = take(&room, GROUP * round_up(job->width, PANEL));
    work.x = take_quantized(&room, most, job->width);
    work.h = take_quantized(&room, most, job->width);
    work.m = take_quantized(&room, GROUP, job->num_cells);
    return work;
}

/* Between (rows, cells) and (blocks, rows, PANEL). What fills up the last block is zero, and stays it. */
static void load_cells(const struct work *work) {
    const struct stack *job = work->job;
    const float *from = job->cells + work->layer * job->num_rows * job->num_cells;
    for (long block = 0; block < work->blocks; block++)
        for (long row = 0; row < job->num_rows; row++) {
            const long count = smaller_of(job->num_cells - block * PANEL, PANEL);
            float *to = work->memory + (block * job->num_rows + row) * PANEL;
            memset(to, 0, PANEL * sizeof *to);
            memcpy(to, from + row * job->num_cells + block * PANEL, (size_t)count * sizeof *to);
        }
}

static void store_cells(const struct work *work) {
    const struct stack *job = work->job;
    float *to = job->cells + work->layer * job->num_rows * job->num_cells;
    for (long block = 0; block < work->blocks; block++)
        for (long row = 0; row < job->num_rows; row++)
            memcpy(to + row * job->num_cells + block * PANEL, work->memory + (block * job->num_rows + row) * PANEL,
                   (size_t)smaller_of(job->num_cells - block * PANEL, PANEL) * sizeof *to);
}

/* Plain rows, rounded if need be. */
static struct operand prepare(const struct work *work, const float *rows, long stride, long count, long depth,
                              struct quantized to) {
    const struct operand found = {{rows, stride, PANEL}, to, depth, count};
    if (work->precision == EXACT) return found;
    for (long column = 0, at = 0; column < depth; column += SLICE) {
        const long columns = smaller_of(depth - column, SLICE), size = (columns + 1) / 2 * 2;
        int16_t *slice = to.values + at * SLICE;
        for (long row = 0; row < count; row++, at++) {
            const float *from = rows + row * stride + column;
            if (work->precision == INT8)
                to.scales[at] = quantize_row(from, columns, slice + row * size);
            else if (work->precision == BYTES)
                to.scales[at] = quantize_bytes(from, columns, (struct byte_row *)to.values + at);
            else
                round_row(from, columns, slice + row * size);
        }
    }
    return found;
}

/* out = from + the products of rows with `num_panels` panels from `first` on, of a matrix with `all_panels`. */
static void multiply(const struct work *work, const struct matrix *matrix, long first, long num_panels, long all_panels,
                     const struct operand *operand, long num_rows, const float *from, long from_stride, float *out,
                     long out_stride) {
    if (work->precision == EXACT) {
        multiply_few((const float *)matrix->packed + first * operand->depth * PANEL, operand->rows, num_rows,
                     operand->depth, from, from_stride, out, out_stride, num_panels);
        return;
    }
    const char *slice = matrix->packed;
    for (long column = 0, index = 0; column < operand->depth; column += SLICE, index++) {
        const long num_pairs = (smaller_of(operand->depth - column, SLICE) + 1) / 2, tile = num_pairs * 2 * TILE;
        const long before = index * operand->most_rows;
        const int16_t *values = operand->quantized.values + before * SLICE;
        const float *start = index ? out : from;
        const long start_stride = index ? out_stride : from_stride;
        if (work->precision == INT8) {
            const struct tiles tiles = {(const int8_t *)slice + first * tile, tile,
                                        matrix->scales + (index * all_panels + first) * TILE};
            const struct quantized inputs = {(int16_t *)values, operand->quantized.scales + before};
            multiply_int8(tiles, inputs, num_rows, num_pairs, start, start_stride, out, out_stride, num_panels * PANEL);
            slice += all_panels * tile;
        } else if (work->precision == BYTES) {
            const long num_quads = (num_pairs + 1) / 2, size = num_quads * 4 * TILE;
            multiply_bytes((const uint8_t *)slice + first * size, matrix->scales + (index * all_panels + first) * TILE,
                           (const struct byte_row *)operand->quantized.values + before, operand->quantized.scales + before,
                           num_rows, num_quads, start, start_stride, out, out_stride, num_panels * PANEL);
            slice += all_panels * size;
        } else {
            multiply_bf16((const uint16_t *)slice + first * tile, values, num_rows, num_pairs, start, start_stride, out,
                          out_stride, num_panels * PANEL);
            slice += all_panels * tile * (long)sizeof(uint16_t);
        }
    }
}

/* One block's cells of a group of rows. */
static void advance_block(const struct work *work, long block, const float *gates, long first, long count) {
    float *memory = work->memory + (block * work->job->num_rows + first) * PANEL;
    const long row_size = work->precision == EXACT ? PANEL : work->cells, block_size = work->precision == EXACT ? count * PANEL : PANEL;
    float *squashed = work->squashed + block * block_size;
    for (long row = 0; row < count; row++)
        for (long at = 0; at < PANEL; at += LANES) {
            const float *from = gates + row * BLOCK + at;
            const struct gates open =
                squash((struct gates){load(from), load(from + PANEL), load(from + 2 * PANEL), load(from + 3 * PANEL)});
            const vec cell = next_cell(open, load(memory + row * PANEL + at), work->job->cell_clip);
            store(memory + row * PANEL + at, cell);
            store(squashed + row * row_size + at, open.out * hyperbolic_tangent(cell));
        }
}

/* h of a group of rows from their m. */
static void project(const struct work *work, long first, long count) {
    const struct stack *job = work->job;
    const struct matrix *projection = &work->weights->projection;
    const long width = job->width, panels = (width + PANEL - 1) / PANEL;
    struct operand m;
    if (work->precision == EXACT)
        m = (struct operand){{work->squashed, PANEL, count * PANEL}, work->m, job->num_cells, count};
    else if (projection->packed)
        m = prepare(work, work->squashed, work->cells, count, job->num_cells, work->m);
    if (projection->packed)
        multiply(work, projection, 0, panels, panels, &m, count, NULL, 0, work->projected, panels * PANEL);
    for (long row = 0; row < count; row++)
        for (long at = 0; at < width; at += LANES) {
            const float *from = work->projected + row * panels * PANEL + at;
            if (!projection->packed)
                from = work->precision == EXACT ? work->squashed + (at / PANEL * count + row) * PANEL + at % PANEL
                                   : work->squashed + row * work->cells + at;
            store_part(work->hidden + (first + row) * width + at, clamp(load(from), job->proj_clip),
                       smaller_of(width - at, LANES));
        }
}

/* One step of `count` rows from `first` on, whose positions begin at `position`. x are their inputs; `ahead` are their
 * gates without the recurrent half, block by block `ahead_size` apart, or NULL. */
static void advance(const struct work *work, const struct operand *x, const float *inputs, float *ahead,
                    long ahead_size, long position, long first, long count) {
    const struct stack *job = work->job;
    const long width = job->width, panels = work->blocks * GATES;
    const struct operand h = prepare(work, work->hidden + first * width, width, count, width, work->h);
    for (long block = 0; block < work->blocks; block++) {
        float *gates = ahead ? ahead + block * ahead_size : work->gates;
        if (!ahead)
            multiply(work, &work->weights->input, block * GATES, GATES, panels, x, count,
                     work->weights->bias + block * BLOCK, 0, gates, BLOCK);
        multiply(work, &work->weights->recurrent, block * GATES, GATES, panels, &h, count, gates, BLOCK, gates, BLOCK);
        advance_block(work, block, gates, first, count);
    }
    project(work, first, count);
    for (long row = 0; row < count; row++) {
        float *to = job->outputs + work->layer * job->layer_stride + job->order[position + row] * job->output_stride;
        const float *h_row = work->hidden + (first + row) * width, *x_row = inputs + row * width;
        if (job->has_skip && work->layer)
            for (long at = 0; at < width; at++) to[at] = h_row[at] + x_row[at];
        else
            memcpy(to, h_row, (size_t)width * sizeof *to);
    }
}

/* x of `count` positions, side by side. */
static struct operand gather_inputs(const struct work *work, long position, long count) {
    const struct stack *job = work->job;
    const float *below = work->layer ? job->outputs + (work->layer - 1) * job->layer_stride : job->tokens;
    const long stride = work->layer ? job->output_stride : job->token_stride;
    for (long at = 0; at < count; at++)
        memcpy(work->inputs + at * job->width, below + job->order[position + at] * stride,
               (size_t)job->width * sizeof(float));
    return prepare(work, work->inputs, job->width, count, job->width, work->x);
}

/* Steps with few rows: W x of all of them, then step by step. */
static void run_ahead(const struct work *work, long step, long num_steps, long position, long count) {
    const struct operand x = gather_inputs(work, position, count);
    for (long block = 0; block < work->blocks; block++)
        multiply(work, &work->weights->input, block * GATES, GATES, work->blocks * GATES, &x, count,
                 work->weights->bias + block * BLOCK, 0, work->gates + block * count * BLOCK, BLOCK);
    long at = 0;
    for (long index = 0; index < num_steps; index++) {
        const long size = work->job->batch_sizes[step + index];
        advance(work, NULL, work->inputs + at * work->job->width, work->gates + at * BLOCK, count * BLOCK,
                position + at, 0, size);
        at += size;
    }
}

static void run_layer(const struct work *work) {
    const struct stack *job = work->job;
    load_cells(work);
    for (long step = 0, position = 0; step < job->num_steps;) {
        long num_steps = 1, count = job->batch_sizes[step];
        while (job->batch_sizes[step] <= FEW_ROWS && step + num_steps < job->num_steps &&
               count + job->batch_sizes[step + num_steps] <= POSITIONS)
            count += job->batch_sizes[step + num_steps++];
        if (num_steps > 1)
            run_ahead(work, step, num_steps, position, count);
        else
            for (long first = 0; first < count; first += GROUP) {
                const long size = smaller_of(count - first, GROUP);
                const struct operand x = gather_inputs(work, position + first, size);
                advance(work, &x, work->inputs, NULL, 0, position + first, first, size);
            }
        position += count;
        step += num_steps;
    }
    store_cells(work);
}

EXPORT void KERNEL(stack_forward)(const struct stack *job) {
    for (long layer = 0; layer < job->num_layers; layer++) {
        const struct work work = begin_layer(job, layer);
        run_layer(&work);
    }
}
