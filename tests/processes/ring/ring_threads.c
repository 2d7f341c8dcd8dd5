/* The rings under ThreadSanitizer: threads over one memory instead of processes, checksums, and threads that die at
 * any step of a write or a read. Prints what happened; exit code 1 if a record was lost, doubled or broken.
 *
 *     ring_threads SECONDS SEED MORTAL
 *
 * One step in MORTAL is the last of its thread. With 0 nobody dies, and nobody may sleep for long either: that would
 * be a lost wake-up. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void step(int number);
#define RING_STEP(number) step(number)

#include "_shared.h"

#define CAPACITY 65536ULL
#define PRODUCERS 3
#define CONSUMERS 2
#define THREADS (PRODUCERS + CONSUMERS)
#define LARGEST 9000
#define RECORDS 4000000 /* in all */
#define NAP_NS 2000000000LL
#define LONG_NS 1000000000LL

typedef struct {
    ring_end end;
    pthread_t thread;
    int producer;
    uint64_t random;
} worker;

typedef struct {
    uint64_t number, check;
} stamp; /* at the beginning of every payload, which goes on with bytes made from the number */

static ring_shared *shared;
static ring_pair *pair;
static uint8_t *pair_data;
static int mortal;
static _Atomic int over, faults;
static _Atomic uint64_t numbers;
static _Atomic uint8_t *put, *got; /* by number: put has returned; how often it came out */
static _Thread_local worker *self;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void fault(const char *what, uint64_t number)
{
    atomic_store(&faults, 1);
    printf("fault: %s number=%llu\n", what, (unsigned long long)number);
}

static uint64_t draw(uint64_t limit) /* xorshift: seeded, and a thread's own */
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return self->random % limit;
}

static void step(int number)
{
    (void)number;
    if (!self) return;
    if (mortal && draw((uint64_t)mortal) == 0) pthread_exit(NULL);
    if (draw(40) == 0) sched_yield();
}

/* -- payloads */

static uint64_t mixed(uint64_t number) { return (number + 1) * 0x9e3779b97f4a7c15ULL; }

static void make(uint8_t *payload, uint64_t length, uint64_t number)
{
    stamp head = {number, mixed(number) ^ length};
    for (uint64_t index = sizeof head; index < length; index++) payload[index] = (uint8_t)(mixed(number) >> (index % 57));
    memcpy(payload, &head, sizeof head);
}

static void check(const ring_view *view)
{
    stamp head;
    if (view->length < sizeof head) return fault("short", view->length);
    memcpy(&head, view->payload, sizeof head);
    if (head.number >= RECORDS || head.check != (mixed(head.number) ^ view->length)) return fault("stamp", head.number);
    for (uint64_t index = sizeof head; index < view->length; index++)
        if (view->payload[index] != (uint8_t)(mixed(head.number) >> (index % 57))) return fault("bytes", head.number);
    if (atomic_fetch_add(&got[head.number], 1)) fault("doubled", head.number);
}

static uint64_t next_payload(uint8_t *payload, uint64_t *number)
{
    uint64_t length = sizeof(stamp) + (draw(8) ? draw(200) : draw(LARGEST - sizeof(stamp)));
    *number = atomic_fetch_add(&numbers, 1);
    if (*number >= RECORDS) {
        atomic_store(&over, 1);
        return 0;
    }
    make(payload, length, *number);
    return length;
}

static void nap(_Atomic uint32_t *word)
{
    int64_t before = now_ns();
    ring_sleep(word, mortal ? NAP_NS / 100 : NAP_NS);
    if (!mortal && now_ns() - before > LONG_NS && !atomic_load(&over)) fault("a wake-up was lost", 0);
}

/* -- many and many */

static int shared_put(ring_end *end, const uint8_t *payload, uint64_t length)
{
    for (;;) {
        ring_record *record;
        int result = shared_reserve(end, 0, (uint32_t)length, &record);
        if (result == RING_DONE) {
            memcpy(record + 1, payload, length);
            step(6);
            shared_publish(end, record);
            return 1;
        }
        if (result != RING_NONE) return 0;
        ring_announce(&end->ring->producer_waits, RING_SLEEPS);
        if (!shared_has_room(end, ring_size(length)) && !atomic_load(&end->ring->closed)) nap(&end->ring->producer_waits);
    }
}

static void *produce(void *argument)
{
    self = argument;
    uint8_t payload[LARGEST];
    uint64_t number, length;
    while ((length = next_payload(payload, &number))) {
        if (!shared_put(&self->end, payload, length)) break;
        atomic_store(&put[number], 1);
    }
    return "done";
}

static void *consume(void *argument)
{
    self = argument;
    ring_view views[16];
    for (;;) {
        int found = 0, bell = 0;
        if (shared_take_turn(&self->end)) {
            found = shared_look(&self->end, 1 + (int)draw(16), views);
            shared_end_turn(&self->end);
        }
        if (found == RING_CORRUPT) return fault("corrupt", 0), "done";
        for (int index = 0; index < found; index++) check(&views[index]);
        if (found) {
            shared_release(&self->end, views, found);
        } else if (shared_want_data(&self->end, RING_SLEEPS, &bell) == RING_NONE) {
            nap(&self->end.ring->consumer_waits);
        } else if (atomic_load(&shared->closed) && atomic_load(&shared->tail) == atomic_load(&shared->head)) {
            return "done";
        }
    }
}

static void start(worker *one, uint64_t owner)
{
    one->end = (ring_end){shared, (uint8_t *)(shared + 1), CAPACITY, owner, 0, RING_SLOTS};
    one->end.slot = shared_register(shared, owner);
    one->random = owner * 0x2545f4914f6cdd1dULL | 1;
    pthread_create(&one->thread, NULL, one->producer ? produce : consume, one);
}

/* Of these dead, those that still have a slot or the turn: it may take several attempts to bury them. */
static size_t unburied(uint64_t *dead, size_t count)
{
    size_t left = 0;
    for (size_t index = 0; index < count; index++) {
        int there = atomic_load(&shared->turn) == dead[index];
        for (uint32_t slot = 0; slot < RING_SLOTS; slot++) there |= atomic_load(&shared->slots[slot].owner) == dead[index];
        if (there) dead[left++] = dead[index];
    }
    return left;
}

/* Those that died are proven to be dead by being joined; then others take their places. */
static void many(double seconds, uint64_t seed)
{
    static worker workers[THREADS];
    int living = THREADS, deaths = 0, bell = 0;
    uint64_t owner = seed << 20, dead[RING_SLOTS], given = 0;
    size_t count = 0;
    ring_end undertaker = {shared, (uint8_t *)(shared + 1), CAPACITY, ++owner, RING_SLOTS, RING_SLOTS};
    int64_t until = now_ns() + (int64_t)(seconds * 1e9);
    for (int index = 0; index < THREADS; index++) {
        workers[index].producer = index < PRODUCERS;
        start(&workers[index], ++owner);
    }
    int finished[THREADS] = {0};
    while (living) {
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
        if (now_ns() > until) { /* in the middle of writes: what was put all the same must come out */
            atomic_store(&over, 1);
            atomic_store(&shared->closed, 1);
            ring_wake(&shared->consumer_waits);
            ring_wake(&shared->producer_waits);
        }
        if (count) given += (uint64_t)shared_bury(&undertaker, dead, count, &bell);
        count = unburied(dead, count);
        for (int index = 0; index < THREADS; index++) {
            void *how = NULL;
            if (finished[index] || pthread_tryjoin_np(workers[index].thread, &how)) continue;
            if (!how) {
                deaths++;
                dead[count++] = workers[index].end.owner;
                start(&workers[index], ++owner);
                continue;
            }
            finished[index] = 1;
            living--;
        }
    }
    given += (uint64_t)shared_bury(&undertaker, dead, count, &bell);
    uint64_t lost = 0, came = 0, made = atomic_load(&numbers);
    for (uint64_t number = 0; number < made && number < RECORDS; number++) {
        came += got[number];
        lost += put[number] && !got[number];
    }
    if (lost > given) fault("lost", lost);
    if (atomic_load(&shared->head) != atomic_load(&shared->tail)) fault("left", atomic_load(&shared->head));
    for (uint64_t index = 0; index < CAPACITY; index++)
        if (((uint8_t *)(shared + 1))[index]) return fault("not cleared", index);
    printf("many: records=%llu delivered=%llu given_up=%llu lost_with_a_consumer=%llu deaths=%d\n",
           (unsigned long long)made, (unsigned long long)came, (unsigned long long)given, (unsigned long long)lost, deaths);
}

/* -- one and one */

static void *pair_produce(void *argument)
{
    self = argument;
    uint8_t payload[LARGEST];
    uint64_t number, length;
    while (!atomic_load(&over) && (length = next_payload(payload, &number))) {
        while (pair_write(pair, pair_data, CAPACITY, 0, payload, length) == RING_NONE) {
            ring_announce(&pair->producer_waits, RING_SLEEPS);
            if (pair_has_room(pair, CAPACITY, ring_size(length)) == RING_NONE) nap(&pair->producer_waits);
        }
        atomic_store(&put[number], 1);
    }
    atomic_store(&pair->closed, 1);
    ring_wake(&pair->consumer_waits);
    return NULL;
}

static void *pair_consume(void *argument)
{
    self = argument;
    uint64_t position = 0, last = 0;
    for (;;) {
        ring_view view;
        int closed = (int)atomic_load(&pair->closed);
        int found = pair_look(pair, pair_data, CAPACITY, position, &view);
        if (found == RING_CORRUPT) return fault("corrupt", 0), NULL;
        if (found == RING_NONE && closed) return NULL;
        if (found == RING_NONE) {
            ring_announce(&pair->consumer_waits, RING_SLEEPS);
            if (pair_look(pair, pair_data, CAPACITY, position, &view) == RING_NONE && !atomic_load(&pair->closed))
                nap(&pair->consumer_waits);
            continue;
        }
        uint64_t number;
        memcpy(&number, view.payload, sizeof number);
        if (last && number != last + 1) fault("out of order", number);
        last = number;
        check(&view);
        position = view.end;
        if (draw(4) == 0) pair_release(pair, CAPACITY, position);
        else if (atomic_load(&pair->tail) == position) pair_release(pair, CAPACITY, position);
    }
}

static void one(double seconds, uint64_t seed)
{
    static worker workers[2] = {{.producer = 1}, {.producer = 0}};
    uint64_t first = atomic_load(&numbers);
    atomic_store(&over, 0);
    mortal = 0;
    for (int index = 0; index < 2; index++) {
        workers[index].random = seed * 77 + (uint64_t)index + 1;
        pthread_create(&workers[index].thread, NULL, index ? pair_consume : pair_produce, &workers[index]);
    }
    int64_t until = now_ns() + (int64_t)(seconds * 1e9);
    while (now_ns() < until && !atomic_load(&over)) sched_yield(), nanosleep(&(struct timespec){0, 2000000}, NULL);
    atomic_store(&over, 1);
    for (int index = 0; index < 2; index++) pthread_join(workers[index].thread, NULL);
    uint64_t made = atomic_load(&numbers), came = 0;
    for (uint64_t number = first; number < made && number < RECORDS; number++) {
        came += got[number];
        if (put[number] && !got[number]) fault("lost", number);
    }
    printf("one: records=%llu delivered=%llu\n", (unsigned long long)(made - first), (unsigned long long)came);
}

int main(int count, char **arguments)
{
    if (count != 4) return 2;
    double seconds = atof(arguments[1]);
    uint64_t seed = strtoull(arguments[2], NULL, 10);
    mortal = atoi(arguments[3]);
    shared = aligned_alloc(RING_LINE, RING_SHARED_DATA + CAPACITY);
    pair = aligned_alloc(RING_LINE, RING_PAIR_DATA + CAPACITY);
    memset(shared, 0, RING_SHARED_DATA + CAPACITY);
    memset(pair, 0, RING_PAIR_DATA + CAPACITY);
    pair_data = (uint8_t *)(pair + 1);
    put = calloc(RECORDS, 1);
    got = calloc(RECORDS, 1);
    alarm((unsigned)seconds + 5); /* who hangs has lost something */
    many(seconds / 2, seed);
    one(seconds / 2, seed);
    return atomic_load(&faults);
}
