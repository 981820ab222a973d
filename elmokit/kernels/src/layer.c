/* A whole LSTM layer with projection: all steps of a packed batch in one call, forward and backward.
 *
 * Packed positions are time-major, rows by falling length: step t is the next batch_sizes[t] positions. Step t of one
 * row, with x its input and h', c' the row's output and cell of the step before:
 *
 *     i, f, o, j = W x + R h' + bias          c, m as in cell.h          h = clip(V m)
 *
 * Backward, last step first, with h_ the gradient of the output from above plus R^T of the next step's gates_:
 *
 *     p_ = h_, 0 where the clip of h holds    m_ = V^T p_     i_, f_, o_, j_, c'_ as in cell.h
 *     x_ = W^T gates_                         h'_ = R^T gates_
 *
 * The weights' gradients, W_ = sum of gates_ x^T, R_ = sum of gates_ h'^T, V_ = sum of p_ m^T, are one product each
 * over all positions (outer.c). x and h' are the two halves of one row, so W and R are one matrix of 2 * width columns.
 *
 * Cells are cut into blocks of PANEL. Whatever there is per cell is stored by blocks, (blocks, positions, PANEL), gates
 * as (blocks, 4, positions, PANEL): as panels of the products that read it next, and so that a step's work on one block
 * stays in the first-level cache. The last block is filled up with cells whose weights are zero; they are computed, but
 * no product reads them.
 *
 * W and R of a large layer do not stay in the cache from step to step. The half that does not wait for the step before,
 * W x and x_, is then computed for several steps at once. Sums are cut in the same places, so the bits are the same.
 *
 * x, h', m, p_ and gates_ are only multiplied: they are items, as the packed weights are (items.h). All else is float32.
 */
#include "cell.h"
#include "panels.h"

enum { GATES = 4 };

struct layer {
    const int64_t *batch_sizes;
    int64_t num_steps, num_positions, num_rows, width, num_cells;
    int64_t group; /* positions whose W x and x_ are computed at once, if width is a multiple of DEPTH; or 0 */
    float cell_clip, proj_clip;
};

struct forward {
    struct layer layer;
    const item *gate_panels;   /* (blocks, 4, 2 width, PANEL): W and R */
    const float *bias;         /* (blocks, 4, PANEL) */
    const item *projection;    /* (panels of width, num_cells, PANEL): V */
    const float *start_hidden; /* (num_rows, width) */
    const float *start_cells;  /* (blocks, num_rows, PANEL) */
    item *joined;              /* (num_positions, 2 width): x, which is given, and h', which is written */
    float *gates;              /* (blocks, 4, num_positions, PANEL), squashed */
    float *cells;              /* (blocks, num_positions, PANEL) */
    item *squashed;            /* the same: m */
    float *outputs;            /* (num_positions, width) */
};

struct backward {
    struct layer layer;
    const item *gate_panels;   /* (panels of 2 width, blocks * 4 * PANEL, PANEL): W and R, transposed */
    const item *projection;    /* (blocks, width, PANEL): V, transposed */
    const float *start_cells;
    const float *gates;        /* squashed */
    item *gates_grad;          /* gates_; in float32 it may be the memory of the gates */
    const float *cells;
    const float *outputs;
    const float *outputs_grad; /* (num_positions, width) */
    item *projected_grad;      /* (num_positions, whole_pairs(width)): p_ */
    float *joined_grad;        /* (num_positions, 2 width): x_ and h'_ */
    float *bias_grad;          /* (blocks, 4, PANEL) */
    float *cell_grad;          /* room for (blocks, num_rows, PANEL) */
    float *squashed_grad;      /* room for (num_rows, PANEL): m_ of one block */
};

INLINE long num_blocks(const struct layer *layer) { return (layer->num_cells + PANEL - 1) / PANEL; }

/* Gate g of a block at a position. */
INLINE long gate_at(const struct layer *layer, long block, long gate, long position) {
    return ((block * GATES + gate) * layer->num_positions + position) * PANEL;
}

INLINE struct gates load_block_gates(const float *gates, long stride) {
    return (struct gates){load(gates), load(gates + stride), load(gates + 2 * stride), load(gates + 3 * stride)};
}

INLINE void store_block_gates(float *to, struct gates gates, long stride) {
    store(to, gates.in);
    store(to + stride, gates.forget);
    store(to + 2 * stride, gates.out);
    store(to + 3 * stride, gates.candidate);
}

INLINE void store_gate_items(item *to, struct gates gates, long stride) {
    store_items(to, gates.in);
    store_items(to + stride, gates.forget);
    store_items(to + 2 * stride, gates.out);
    store_items(to + 3 * stride, gates.candidate);
}

/* An odd number of cells leaves one beside the last in its pair, which a product reads: it must be finite. */
INLINE void clear_pair(const struct layer *layer, long block, item *items, long size) {
    if (PAIR == 1 || layer->num_cells % PAIR == 0 || block != layer->num_cells / PANEL) return;
    for (long row = 0; row < size; row++) items[row * PANEL + layer->num_cells % PANEL] = 0;
}

/* The steps from `step` on whose positions are at most a group, at least one; *size gets their positions. */
static long group_steps(const struct layer *layer, long step, long *size) {
    long count = 0;
    for (*size = 0; step + count < layer->num_steps; count++) {
        const long rows = layer->batch_sizes[step + count];
        if (count && *size + rows > layer->group) break;
        *size += rows;
    }
    return count;
}

/* Columns `first` to `last` of x and h' in one block's gates of `size` positions, before squashing. */
static void open_gates(const struct forward *job, long block, long position, long size, long first, long last) {
    const long depth = 2 * job->layer.width;
    const struct rows joined = {job->joined + position * depth, depth, PANEL};
    const item *panels = job->gate_panels + block * GATES * depth * PANEL;
    const float *bias = job->bias + block * GATES * PANEL;
    float *to = job->gates + gate_at(&job->layer, block, 0, position);
    const long apart = job->layer.num_positions * PANEL;
    for (long k = first; k < last; k += DEPTH) {
        const long next = k + DEPTH < last ? DEPTH : GATES * depth - (k - first);
        const struct gaps gaps = {depth * PANEL, k ? apart : PANEL, apart, next * PANEL};
        multiply_parts(panels + k * PANEL, gaps, skip_depth(joined, k), size, smaller_of(last - k, DEPTH), k ? to : bias,
                       k ? PANEL : 0, to, PANEL, GATES * PANEL);
    }
}

/* One block's cells of all rows of a step. */
static void advance_block(const struct forward *job, long block, long position, long size, const float *before) {
    const long stride = job->layer.num_positions * PANEL;
    float *gates = job->gates + gate_at(&job->layer, block, 0, position);
    float *after = job->cells + (block * job->layer.num_positions + position) * PANEL;
    item *squashed = job->squashed + (block * job->layer.num_positions + position) * PANEL;
    for (long at = 0; at < size * PANEL; at += LANES) {
        const struct gates open = squash(load_block_gates(gates + at, stride));
        const vec cell = next_cell(open, load(before + at), job->layer.cell_clip);
        store_block_gates(gates + at, open, stride);
        store(after + at, cell);
        store_items(squashed + at, open.out * hyperbolic_tangent(cell));
    }
    clear_pair(&job->layer, block, squashed, size);
}

/* Clip the outputs of a step, and hand them to the rows that go on. */
static void clip_outputs(const struct forward *job, long position, long size, long next_size) {
    const long width = job->layer.width;
    for (long row = 0; row < size; row++) {
        float *output = job->outputs + (position + row) * width;
        long at = 0;
        for (; at + LANES <= width; at += LANES) store(output + at, clamp(load(output + at), job->layer.proj_clip));
        if (at < width)
            store_part(output + at, clamp(load_part(output + at, width - at), job->layer.proj_clip), width - at);
        if (row < next_size) copy_items(job->joined + (position + size + row) * 2 * width + width, output, width);
    }
}

EXPORT void ITEM_KERNEL(layer_forward)(const struct forward *job) {
    begin_products();
    const struct layer *layer = &job->layer;
    const long width = layer->width, blocks = num_blocks(layer);
    for (long row = 0; layer->num_steps && row < layer->batch_sizes[0]; row++)
        copy_items(job->joined + row * 2 * width + width, job->start_hidden + row * width, width);
    const long ahead = layer->group ? width : 0; /* columns that are computed for several steps at once */
    for (long step = 0, position = 0, earlier = 0, next_group = 0; step < layer->num_steps; step++) {
        const long size = layer->batch_sizes[step];
        if (ahead && step == next_group) {
            long group;
            next_group += group_steps(layer, step, &group);
            for (long block = 0; block < blocks; block++) open_gates(job, block, position, group, 0, ahead);
        }
        for (long block = 0; block < blocks; block++) {
            const float *before = step ? job->cells + (block * layer->num_positions + earlier) * PANEL
                                       : job->start_cells + block * layer->num_rows * PANEL;
            open_gates(job, block, position, size, ahead, 2 * width);
            advance_block(job, block, position, size, before);
        }
        const struct rows squashed = {job->squashed + position * PANEL, PANEL, layer->num_positions * PANEL};
        multiply_panels(job->projection, squashed, size, layer->num_cells, job->outputs + position * width, width,
                        width, 0);
        clip_outputs(job, position, size, step + 1 < layer->num_steps ? layer->batch_sizes[step + 1] : 0);
        earlier = position;
        position += size;
    }
    end_products();
}

/* p_ of a step: from above, and for rows that go on from the step after. */
static void project_gradient(const struct backward *job, long position, long size, long next_size) {
    const long width = job->layer.width, pitch = whole_pairs(width);
    const float clip = job->layer.proj_clip;
    for (long row = 0; row < size; row++) {
        const float *above = job->outputs_grad + (position + row) * width;
        const float *after = job->joined_grad + (position + size + row) * 2 * width + width;
        const float *output = job->outputs + (position + row) * width;
        item *to = job->projected_grad + (position + row) * pitch;
        for (long at = 0; at < width; at += LANES) {
            const long count = smaller_of(width - at, LANES);
            vec grad = load_part(above + at, count);
            if (row < next_size) grad += load_part(after + at, count);
            const vec found = load_part(output + at, count);
            store_items_part(to + at, choose((found >= clip) | (found <= -clip), (vec){0}, grad), count);
        }
        if (pitch > width) to[width] = 0;
    }
}

/* One block's gates_ of all rows of a step, from their m_. */
static void retreat_block(const struct backward *job, long block, long position, long size, const float *before) {
    const long stride = job->layer.num_positions * PANEL;
    const float *gates = job->gates + gate_at(&job->layer, block, 0, position);
    item *gates_grad = job->gates_grad + gate_at(&job->layer, block, 0, position);
    const float *cells = job->cells + (block * job->layer.num_positions + position) * PANEL;
    float *cell_grad = job->cell_grad + block * job->layer.num_rows * PANEL;
    for (long part = 0; part < PANEL; part += LANES) {
        float *bias_grad = job->bias_grad + block * GATES * PANEL + part;
        struct gates total = load_block_gates(bias_grad, PANEL);
        for (long at = part; at < size * PANEL; at += PANEL) {
            vec reached = load(cell_grad + at);
            const struct gates found =
                gate_gradients(load_block_gates(gates + at, stride), load(cells + at), load(before + at),
                               load(job->squashed_grad + at), &reached, job->layer.cell_clip);
            store_gate_items(gates_grad + at, found, stride);
            store(cell_grad + at, reached);
            total.in += found.in, total.forget += found.forget;
            total.out += found.out, total.candidate += found.candidate;
        }
        store_block_gates(bias_grad, total, PANEL);
    }
    for (long gate = 0; gate < GATES; gate++) clear_pair(&job->layer, block, gates_grad + gate * stride, size);
}

/* Some positions, and columns of x_ and h'_. */
struct window {
    long position, size, first, last;
};

/* The part of x_ and h'_ that comes through `depth` gates from the k-th on. */
static void join_part(const struct backward *job, struct window window, long k, long depth) {
    const long columns = 2 * job->layer.width, all_gates = num_blocks(&job->layer) * GATES * PANEL;
    const struct rows grads = {job->gates_grad + window.position * PANEL, PANEL, job->layer.num_positions * PANEL};
    float *out = job->joined_grad + window.position * columns;
    out += window.first;
    const struct gaps gaps = {all_gates * PANEL, PANEL, PANEL, DEPTH * PANEL};
    multiply_parts(job->gate_panels + window.first * all_gates + k * PANEL, gaps, skip_depth(grads, k), window.size, depth,
                   k ? out : NULL, columns, out, columns, window.last - window.first);
}

/* x_ and h'_: whole blocks together, then the cells of a last block that is not whole, gate by gate. */
static void join_gradient(const struct backward *job, struct window window) {
    const long whole = job->layer.num_cells / PANEL * GATES * PANEL, left = job->layer.num_cells % PANEL;
    for (long k = 0; k < whole; k += DEPTH) join_part(job, window, k, smaller_of(whole - k, DEPTH));
    for (long gate = 0; left && gate < GATES; gate++) join_part(job, window, whole + gate * PANEL, left);
}

EXPORT void ITEM_KERNEL(layer_backward)(const struct backward *job) {
    begin_products();
    const struct layer *layer = &job->layer;
    const long width = layer->width, pitch = whole_pairs(width), blocks = num_blocks(layer);
    memset(job->cell_grad, 0, (size_t)(blocks * layer->num_rows * PANEL) * sizeof(float));
    memset(job->bias_grad, 0, (size_t)(blocks * GATES * PANEL) * sizeof(float));
    const long ahead = layer->group ? width : 0; /* columns that are computed for several steps at once */
    long position = layer->num_positions, waiting = 0; /* positions whose x_ is not yet computed */
    for (long step = layer->num_steps; step-- > 0;) {
        const long size = layer->batch_sizes[step];
        const long next_size = step + 1 < layer->num_steps ? layer->batch_sizes[step + 1] : 0;
        position -= size;
        project_gradient(job, position, size, next_size);
        const struct rows projected = {job->projected_grad + position * pitch, pitch, PANEL};
        for (long block = 0; block < blocks; block++) {
            const float *before =
                step ? job->cells + (block * layer->num_positions + position - layer->batch_sizes[step - 1]) * PANEL
                     : job->start_cells + block * layer->num_rows * PANEL;
            multiply_panels(job->projection + block * pitch * PANEL, projected, size, width, job->squashed_grad, PANEL,
                            PANEL, 0);
            retreat_block(job, block, position, size, before);
        }
        join_gradient(job, (struct window){position, size, ahead, 2 * width});
        waiting += size;
        if (ahead && (!step || waiting + layer->batch_sizes[step - 1] > layer->group)) {
            join_gradient(job, (struct window){position, waiting, 0, ahead});
            waiting = 0;
        }
    }
    end_products();
}
