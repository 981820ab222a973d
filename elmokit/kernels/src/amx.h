/* Products of bfloat16 by AMX: 16 rows, 16 columns and 32 k per instruction.
 *
 * The panels of items.h are what the instruction reads: 16 pairs of k by PANEL columns are 1 kB without gaps. Of the other
 * operand it reads 32 neighboring k of each row. A block is two by two tiles of sums, with two tiles of each operand: every
 * tile that is loaded serves two products.
 *
 * Sums of even and of odd k are made apart and added to the result for every 32 k, without denormals. Row r of a sum depends
 * on row r alone. Where the other operand is itself in panels, with 16 neighboring k, it is copied first.
 *
 * A thread shapes its tiles by begin_products before the first product, and frees them by end_products after the last.
 *
 * Panels stream from the last cache: while four blocks of rows pass one part of a panel, they fetch what is read next.
 */
#ifndef ELMOKIT_AMX_H
#define ELMOKIT_AMX_H

enum {
    TILE_ROWS = 16,
    TILE_DEPTH = 32,            /* k per instruction */
    BLOCK_ROWS = 2 * TILE_ROWS, /* rows of a block of sums */
    PACKED_ROWS = 128,          /* rows that are copied at once */
    PACKED_STRIDE = DEPTH + TILE_DEPTH /* not a power of two, so that rows do not share places in the cache */
};

/* Tiles 0 to 3 are sums, 2 * (second rows) + (second panel); 4 and 5 are rows, 6 and 7 panels. "memory": the compiler
 * cannot see what is read and written. */
#define LOAD_TILE(tile, from, stride)                                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((long)(stride)) : "memory")
#define STORE_TILE(tile, to, stride)                                                                                  \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((long)(stride)) : "memory")
#define CLEAR_TILE(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define ADD_TILES(sum, rows, panel) __asm__ volatile("tdpbf16ps %%tmm" #panel ", %%tmm" #rows ", %%tmm" #sum ::)

/* Rows of both halves of a block, pairs of k, and columns of a panel; all at least 1. */
struct tile_shape {
    long first, second, pairs, columns;
};

static const struct tile_shape WHOLE = {TILE_ROWS, TILE_ROWS, TILE_DEPTH / 2, PANEL};

static void shape_tiles(struct tile_shape shape) {
    struct {
        uint8_t palette, start, unused[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) config = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        const long half = tile < 4 ? tile / 2 : tile - 4;
        config.rows[tile] = (uint8_t)(tile >= 6 ? shape.pairs : half ? shape.second : shape.first);
        config.bytes[tile] = (uint16_t)(4 * (tile == 4 || tile == 5 ? shape.pairs : shape.columns));
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

INLINE void begin_products(void) { shape_tiles(WHOLE); }
INLINE void end_products(void) { __asm__ volatile("tilerelease" ::); }

/* One or two panels, which lie `panel_gap` apart, their sums `from_gap` and `out_gap`; one or two tiles of rows. */
struct block {
    const item *panel, *row;
    long panel_gap, row_stride;
    const float *from; /* NULL for zeros */
    float *out;
    long from_stride, from_gap, out_stride, out_gap;
    const item *ahead; /* a quarter of the tiles that are read next, to be fetched */
};

#define EACH_SUM(DO)                                                                                                  \
    do {                                                                                                              \
        DO(0, 0, 0);                                                                                                  \
        if (panels > 1) DO(1, 0, 1);                                                                                  \
        if (halves > 1) DO(2, 1, 0);                                                                                  \
        if (halves > 1 && panels > 1) DO(3, 1, 1);                                                                    \
    } while (0)

INLINE void load_sums(const struct block *block, const int halves, const int panels) {
#define LOAD(tile, half, p)                                                                                           \
    LOAD_TILE(tile, block->from + (half) * TILE_ROWS * block->from_stride + (p) * block->from_gap, block->from_stride * 4)
#define CLEAR(tile, half, p) CLEAR_TILE(tile)
    if (block->from)
        EACH_SUM(LOAD);
    else
        EACH_SUM(CLEAR);
#undef LOAD
#undef CLEAR
}

INLINE void keep_sums(const struct block *block, const int halves, const int panels) {
#define STORE(tile, half, p)                                                                                          \
    STORE_TILE(tile, block->out + (half) * TILE_ROWS * block->out_stride + (p) * block->out_gap, block->out_stride * 4)
    EACH_SUM(STORE);
#undef STORE
}

enum { QUARTER = TILE_DEPTH * PANEL / 4, LINE = 64 / sizeof(item) };

/* The k-th and the following as far as tiles are shaped. */
INLINE void add_block(const struct block *block, long k, const int halves, const int panels) {
    const long stride = block->row_stride * (long)sizeof(item);
    const item *panel = block->panel + k * PANEL, *row = block->row + k;
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int line = 0; line < QUARTER / LINE; line++)
            __builtin_prefetch(block->ahead + k * PANEL + p * block->panel_gap + line * LINE, 0, 2);
    LOAD_TILE(6, panel, 4 * PANEL);
    LOAD_TILE(4, row, stride);
    ADD_TILES(0, 4, 6);
    if (panels > 1) {
        LOAD_TILE(7, panel + block->panel_gap, 4 * PANEL);
        ADD_TILES(1, 4, 7);
    }
    if (halves > 1) {
        LOAD_TILE(5, row + TILE_ROWS * block->row_stride, stride);
        ADD_TILES(2, 5, 6);
        if (panels > 1) ADD_TILES(3, 5, 7);
    }
}

/* A block of sums; `halves` and `panels` are constants. Tiles have the whole shape before and after. */
INLINE void multiply_block_of(struct block block, long rows, long depth, long columns, const int halves, const int panels) {
    struct tile_shape shape = WHOLE;
    if (halves > 1)
        shape.second = rows - TILE_ROWS;
    else
        shape.first = rows;
    shape.columns = columns;
    const int whole = rows == halves * TILE_ROWS && columns == PANEL;
    const long left = whole_pairs(depth) % TILE_DEPTH;
    if (!whole) shape_tiles(shape);
    if (depth >= TILE_DEPTH || !left) {
        load_sums(&block, halves, panels);
        for (long k = 0; k < depth - left; k += TILE_DEPTH) add_block(&block, k, halves, panels);
        keep_sums(&block, halves, panels);
        if (left) block.from = block.out, block.from_stride = block.out_stride, block.from_gap = block.out_gap;
    }
    if (left) {
        shape.pairs = left / 2;
        shape_tiles(shape);
        load_sums(&block, halves, panels);
        add_block(&block, whole_pairs(depth) - left, halves, panels);
        keep_sums(&block, halves, panels);
    }
    if (!whole || left) shape_tiles(WHOLE);
}

static void multiply_block(struct block block, long rows, long depth, long columns, long panels) {
    if (rows > TILE_ROWS && panels > 1)
        multiply_block_of(block, rows, depth, columns, 2, 2);
    else if (rows > TILE_ROWS)
        multiply_block_of(block, rows, depth, columns, 2, 1);
    else if (panels > 1)
        multiply_block_of(block, rows, depth, columns, 1, 2);
    else
        multiply_block_of(block, rows, depth, columns, 1, 1);
}

/* multiply_parts for rows whose k lie side by side, `row_stride` apart. A block's rows stay in the first-level cache while
 * all panels pass. */
static void multiply_plain(const item *panel, struct gaps gaps, const item *row, long row_stride, long num_rows, long depth,
                           const float *from, long from_stride, float *out, long out_stride, long num_columns) {
    for (long first = 0, panels; first < num_columns; first += panels * PANEL) {
        panels = num_columns - first >= 2 * PANEL ? 2 : 1;
        for (long at = 0; at < num_rows; at += BLOCK_ROWS) {
            const struct block block = {panel,       row + at * row_stride,
                                        gaps.panel,  row_stride,
                                        from ? from + at * from_stride : NULL,
                                        out + at * out_stride,
                                        from_stride, gaps.from,
                                        out_stride,  gaps.out,
                                        panel + gaps.next + at / BLOCK_ROWS % 4 * QUARTER};
            multiply_block(block, smaller_of(num_rows - at, BLOCK_ROWS), depth, smaller_of(num_columns - first, PANEL), panels);
        }
        panel += panels * gaps.panel, out += panels * gaps.out;
        if (from) from += panels * gaps.from;
    }
}

/* All rows times one part of several panels, as in panels.h; depth is at most DEPTH. */
static inline void multiply_parts(const item *panel, struct gaps gaps, struct rows rows, long num_rows, long depth,
                                  const float *from, long from_stride, float *out, long out_stride, long num_columns) {
    if (rows.panel == PANEL) {
        multiply_plain(panel, gaps, rows.first, rows.row, num_rows, depth, from, from_stride, out, out_stride, num_columns);
        return;
    }
    item packed[PACKED_ROWS * PACKED_STRIDE] __attribute__((aligned(64)));
    for (long at = 0; at < num_rows; at += PACKED_ROWS) {
        const long count = smaller_of(num_rows - at, PACKED_ROWS);
        for (long k = 0; k < depth; k += PANEL) {
            const item *here = rows.first + at * PANEL + k / PANEL * rows.panel;
            for (long r = 0; r < count; r++) memcpy(packed + r * PACKED_STRIDE + k, here + r * PANEL, PANEL * sizeof(item));
        }
        multiply_plain(panel, gaps, packed, PACKED_STRIDE, count, depth, from ? from + at * from_stride : NULL, from_stride,
                       out + at * out_stride, out_stride, num_columns);
    }
}

static inline void multiply_part(const item *panel, struct rows rows, long num_rows, long depth, const float *from,
                                 long from_stride, float *out, long out_stride, long columns) {
    multiply_parts(panel, (struct gaps){0, 0, 0, 0}, rows, num_rows, depth, from, from_stride, out, out_stride, columns);
}

#endif
