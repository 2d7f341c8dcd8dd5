/* A wire between two network namespaces that delays packets and loses some: what netem does, where a kernel has none.

   wire NAMESPACE INTERFACE NAMESPACE INTERFACE

   It makes a TAP interface in each namespace, says "ready", and carries packets between them until its standard input
   ends. A line "delay_us jitter_us loss_ppm" there changes what it does from then on. Packets stay in their order, as
   on a wire: one that is late makes those behind it wait. One that finds the queue full is lost. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKETS = 4096, PACKET_BYTES = 1600, LINE_BYTES = 256 };

struct packet {
    int64_t due_ns;
    int bytes;
    char data[PACKET_BYTES];
};

struct direction {
    int from, to;
    unsigned first, count;
    int64_t last_due_ns;
    struct packet queue[PACKETS];
};

static struct direction directions[2];
static double delay_ns, jitter_ns, loss;

static void fail(const char *what) {
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The interface stays in the namespace in which it is made, wherever its file is read and written. */
static int make_tap(const char *namespace, const char *name) {
    int there = open(namespace, O_RDONLY | O_CLOEXEC);
    if (there < 0 || setns(there, CLONE_NEWNET) < 0) fail(namespace);
    close(there);
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap < 0) fail("/dev/net/tun");
    struct ifreq request;
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (ioctl(tap, TUNSETIFF, &request) < 0) fail(name);
    return tap;
}

static void take(struct direction *way) {
    char lost[PACKET_BYTES];
    for (;;) {
        struct packet *packet = &way->queue[(way->first + way->count) % PACKETS];
        int full = way->count == PACKETS;
        ssize_t bytes = read(way->from, full ? lost : packet->data, PACKET_BYTES);
        if (bytes <= 0) return; /* no more now, or the interface is down */
        if (full || drand48() < loss) continue;
        int64_t due_ns = now_ns() + (int64_t)(delay_ns + jitter_ns * drand48());
        if (due_ns < way->last_due_ns) due_ns = way->last_due_ns;
        packet->due_ns = way->last_due_ns = due_ns;
        packet->bytes = (int)bytes;
        way->count++;
    }
}

static void give(struct direction *way) {
    while (way->count > 0 && way->queue[way->first].due_ns <= now_ns()) {
        struct packet *packet = &way->queue[way->first];
        ssize_t written = write(way->to, packet->data, (size_t)packet->bytes);
        (void)written; /* an interface that is down, or full, loses it */
        way->first = (way->first + 1) % PACKETS;
        way->count--;
    }
}

static int64_t wait_ns(void) {
    int64_t least = -1;
    for (int i = 0; i < 2; i++) {
        if (directions[i].count == 0) continue;
        int64_t left = directions[i].queue[directions[i].first].due_ns - now_ns();
        if (left < 0) left = 0;
        if (least < 0 || left < least) least = left;
    }
    return least;
}

/* False at the end of the input. */
static int obey(void) {
    char line[LINE_BYTES];
    ssize_t bytes = read(STDIN_FILENO, line, sizeof line - 1);
    if (bytes <= 0) return 0;
    line[bytes] = 0;
    double delay_us, jitter_us, loss_ppm;
    if (sscanf(line, "%lf %lf %lf", &delay_us, &jitter_us, &loss_ppm) == 3) {
        delay_ns = delay_us * 1e3;
        jitter_ns = jitter_us * 1e3;
        loss = loss_ppm / 1e6;
    }
    return 1;
}

int main(int count, char **words) {
    if (count != 5) {
        fprintf(stderr, "usage: wire NAMESPACE INTERFACE NAMESPACE INTERFACE\n");
        return 2;
    }
    int near = make_tap(words[1], words[2]), far = make_tap(words[3], words[4]);
    directions[0].from = directions[1].to = near;
    directions[1].from = directions[0].to = far;
    srand48(1);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd files[3] = {{near, POLLIN, 0}, {far, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        int64_t left = wait_ns();
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        if (ppoll(files, 3, left < 0 ? NULL : &timeout, NULL) < 0 && errno != EINTR) fail("ppoll");
        for (int i = 0; i < 2; i++) {
            if (files[i].revents & POLLIN) take(&directions[i]);
            else if (files[i].revents) usleep(1000); /* the interface is down: do not spin */
            give(&directions[i]);
        }
        if (files[2].revents && !obey()) return 0;
    }
}
