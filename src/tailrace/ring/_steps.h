/* For tests, a build with -DRING_STEPS can stop a process at a given step of an algorithm, or abandon the algorithm
 * there as if the process had died. Other builds have no steps. */
#ifndef TAILRACE_RING_STEPS_H
#define TAILRACE_RING_STEPS_H

#ifdef RING_STEPS
#include <setjmp.h>
#include <signal.h>

static int ring_stop_at, ring_leave_at;
static jmp_buf ring_left;

static void ring_step(int number)
{
    if (number == ring_leave_at) longjmp(ring_left, 1);
    if (number != ring_stop_at) return;
    ring_stop_at = 0;
    raise(SIGSTOP);
}
#define RING_STEP(number) ring_step(number)

/* stop_at(step): stop this process the next time it reaches the step. */
static PyObject *stop_at(PyObject *module, PyObject *step)
{
    ring_stop_at = (int)PyLong_AsLong(step);
    Py_RETURN_NONE;
}

/* Defines a variant of a method whose first argument is a step at which it is abandoned; it then returns None. */
#define LEAVING(name, type, call)                                                             \
    static PyObject *name(type *self, PyObject *const *arguments, Py_ssize_t count)           \
    {                                                                                         \
        if (count < 1) return PyErr_Format(PyExc_TypeError, "takes a step");                  \
        ring_leave_at = (int)PyLong_AsLong(arguments[0]);                                     \
        PyObject *result = setjmp(ring_left) ? Py_NewRef(Py_None) : (call);                   \
        ring_leave_at = 0;                                                                    \
        return result;                                                                        \
    }
#endif

#endif
