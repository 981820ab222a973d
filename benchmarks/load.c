/* HTTP load generator: some connections with keep-alive, one request at a time on each, from one thread.
 *
 *   cc -O2 -o load load.c
 *   ./load PORT CONNECTIONS SECONDS RATE PATH BODIES
 *
 * BODIES is a file of request bodies, each after its length as a little-endian 32-bit integer; they are sent in turn.
 * RATE is the number of requests per second over all connections; 0 sends the next request when the answer is there.
 * With a rate, latency counts from the time at which a request was due, so that a slow answer delays none unseen.
 * A refused or broken connection is counted and opened again after 20 ms.
 *
 * Prints one JSON object: requests, seconds, seconds until the last answer, answers per status, latencies in ms, own CPU
 * seconds. A server that answers many clients at once is measured by the time until its last answer: what it was
 * computing at the end is not counted.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 8192, MOST_LATENCIES = 4000000 };
enum state { CLOSED, IDLE, SENDING, RECEIVING };

struct request { char *data; size_t size; };
struct connection {
    int fd;
    enum state state;
    size_t sent, received, expected;    /* bytes; expected is 0 until the header is complete */
    int status;
    double due, retry_at;
    const struct request *request;
    char head[HEAD];
};

static struct request *requests;
static size_t num_requests, next_request;
static int statuses[600], num_broken;
static float *latencies;
static size_t num_latencies;
static double last_answer;
static struct sockaddr_in address;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void die(const char *what) { perror(what); exit(1); }

static void read_requests(const char *path, const char *file) {
    FILE *in = fopen(file, "rb");
    uint32_t size;
    if (!in) die(file);
    while (fread(&size, 4, 1, in) == 1) {
        requests = realloc(requests, (num_requests + 1) * sizeof *requests);
        struct request *one = &requests[num_requests++];
        char header[512];
        int length = snprintf(header, sizeof header,
            "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %u\r\n\r\n", path, size);
        one->size = length + size;
        one->data = malloc(one->size);
        memcpy(one->data, header, length);
        if (fread(one->data + length, 1, size, in) != size) die("truncated bodies");
    }
    fclose(in);
    if (!num_requests) { fprintf(stderr, "no bodies in %s\n", file); exit(1); }
}

static void break_off(struct connection *c, double time) {
    if (c->state == SENDING || c->state == RECEIVING || c->state == CLOSED) num_broken++;
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->state = CLOSED;
    c->retry_at = time + 0.02;
}

static void open_connection(struct connection *c, double time) {
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0) die("socket");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0) { break_off(c, time); return; }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->state = IDLE;
}

static void send_more(struct connection *c, double time) {
    while (c->sent < c->request->size) {
        ssize_t n = send(c->fd, c->request->data + c->sent, c->request->size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) { break_off(c, time); return; }
        c->sent += n;
    }
    c->state = RECEIVING;
}

static void start(struct connection *c, double due, double time) {
    c->request = &requests[next_request++ % num_requests];
    c->sent = c->received = c->expected = 0;
    c->due = due;
    c->state = SENDING;
    send_more(c, time);
}

static void receive_more(struct connection *c) {
    static char rest[1 << 18];
    for (;;) {
        int in_head = !c->expected;
        char *into = in_head ? c->head + c->received : rest;
        size_t room = in_head ? HEAD - 1 - c->received : sizeof rest;
        ssize_t n = recv(c->fd, into, room, 0);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) { break_off(c, now()); return; }
        c->received += n;
        if (in_head) {
            c->head[c->received] = 0;
            char *end = strstr(c->head, "\r\n\r\n"), *length = strcasestr(c->head, "content-length:");
            if (!end) continue;
            c->status = atoi(c->head + 9);
            c->expected = (end + 4 - c->head) + (length && length < end ? strtoul(length + 15, NULL, 10) : 0);
        }
        if (c->received >= c->expected) {
            double time = now();
            statuses[c->status > 0 && c->status < 600 ? c->status : 0]++;
            if (c->status == 200 && num_latencies < MOST_LATENCIES) latencies[num_latencies++] = 1e3 * (time - c->due);
            last_answer = time;
            c->state = IDLE;
            return;
        }
    }
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(double q) { return num_latencies ? latencies[(size_t)(q * (num_latencies - 1))] : 0; }

static void report(double begin, double seconds) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    long total = 0;
    for (int s = 0; s < 600; s++) total += statuses[s];
    printf("{\"requests\": %ld, \"seconds\": %.3f, \"answered\": %.3f, \"statuses\": {", total, seconds,
        last_answer > begin ? last_answer - begin : seconds);
    const char *comma = "";
    for (int s = 0; s < 600; s++)
        if (statuses[s]) { printf("%s\"%d\": %d", comma, s, statuses[s]); comma = ", "; }
    qsort(latencies, num_latencies, sizeof *latencies, compare);
    printf("}, \"broken\": %d, \"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"max\": %.3f, \"cpu\": %.3f}\n", num_broken,
        quantile(.5), quantile(.9), quantile(.99), quantile(1), cpu);
}

int main(int argc, char **argv) {
    if (argc != 7) { fprintf(stderr, "usage: load PORT CONNECTIONS SECONDS RATE PATH BODIES\n"); return 2; }
    int num = atoi(argv[2]);
    double rate = atof(argv[4]);
    address.sin_family = AF_INET;
    address.sin_port = htons(atoi(argv[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    read_requests(argv[5], argv[6]);
    latencies = malloc(MOST_LATENCIES * sizeof *latencies);
    struct connection *all = calloc(num, sizeof *all);
    struct pollfd *polled = calloc(num, sizeof *polled);
    double begin = now(), end = begin + atof(argv[3]), due = begin;
    for (int i = 0; i < num; i++) { all[i].fd = -1; open_connection(&all[i], begin); }
    for (double time = begin; time < end; time = now()) {
        int wait = 20;
        for (int i = 0; i < num; i++) {
            struct connection *c = &all[i];
            if (c->state == CLOSED && time >= c->retry_at) open_connection(c, time);
            if (c->state == IDLE) {
                if (rate <= 0) start(c, time, time);
                else if (due <= time) { start(c, due, time); due += 1 / rate; }
            }
            polled[i].fd = c->state == CLOSED || c->state == IDLE ? -1 : c->fd;
            polled[i].events = c->state == SENDING ? POLLOUT : POLLIN;
        }
        if (rate > 0) {
            double left = 1e3 * (due - time);
            wait = left < 0 ? 1 : left > 20 ? 20 : (int)left;
        }
        poll(polled, num, wait);
        for (int i = 0; i < num; i++) {
            if (polled[i].fd < 0 || !polled[i].revents) continue;
            if (all[i].state == SENDING) send_more(&all[i], now());
            else if (all[i].state == RECEIVING) receive_more(&all[i]);
        }
    }
    report(begin, now() - begin);
    return 0;
}
