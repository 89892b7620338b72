"""Celery (PyPI; kombu over py-amqp) against a broker: workers, results, countdowns, what becomes of a killed worker.

    test_celery.py [--peer] HOST:PORT [HOST:PORT ...]

One check is one function; its docstring says what it proves and names the rules of the spec. Each starts workers of
its own (this script with --work), on another node than its client's where there are several. `--peer` says that the
broker is RabbitMQ 4.0: nothing differs for it here.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import celery
import kombu

WAIT_SECONDS = 300  # what has not come by then never comes
RUN = uuid.uuid4().hex[:8]
# A worker knocks off early in no check: what it does when asked to stop is not looked at.
STOP_SECONDS = 10
CHECKS = []


# --- the application, the same in client and worker --------------------------------------------------------------


def application(address, queue, queue_type):
    app = celery.Celery("interop", broker=f"amqp://guest:guest@{address}//", backend="rpc://")
    app.conf.update(
        task_default_queue=queue,
        task_default_exchange=queue,
        task_default_exchange_type="topic",
        task_default_routing_key=queue,
        task_default_queue_type=queue_type,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        broker_transport_options={"confirm_publish": True},
        broker_connection_retry_on_startup=True,
        result_expires=60,
        worker_prefetch_multiplier=4,
        # Otherwise the worker asks for a limit of the whole channel and shrinks it as tasks come (QOS-06).
        worker_detect_quorum_queues=True,
        broker_native_delayed_delivery_queue_type="quorum",
    )

    @app.task(name="add", shared=False)
    def add(x, y):
        return x + y

    @app.task(name="now", shared=False)
    def now():
        return time.time()

    @app.task(name="twice", shared=False, bind=True, max_retries=3)
    def twice(self):
        """Fails once, and is tried again."""
        if self.request.retries == 0:
            raise self.retry(countdown=1)
        return self.request.retries

    @app.task(name="slow", shared=False, bind=True)
    def slow(self, marker):
        """Tells that it has begun, by a file; lasts for ever the first time."""
        first = not os.path.exists(marker)
        with open(marker, "a", encoding="utf-8") as file:
            file.write("begun\n")
        while first:
            time.sleep(0.1)
        return bool(self.request.delivery_info.get("redelivered"))

    return app


def work(address, queue, queue_type):
    app = application(address, queue, queue_type)
    app.worker_main(["worker", "--pool=threads", "--concurrency=2", "--loglevel=info", "--without-mingle",
                     "--without-gossip", f"--hostname={uuid.uuid4().hex}@interop"])


# --- what every check uses -----------------------------------------------------------------------------------------


def check(function):
    CHECKS.append(function)
    return function


class Scene:
    """Application, workers and queues of one check; everything is stopped and deleted when the check ends."""

    def __init__(self, addresses, name):
        self.addresses, self.queue = addresses, f"interop-celery-{RUN}-{name}"
        self.workers, self.logs = [], tempfile.TemporaryDirectory()

    def address(self, node):
        return self.addresses[node % len(self.addresses)]

    def app(self, queue_type="classic", workers=1):
        """The client's application on the second node, and workers on the first, ready."""
        self.app_ = application(self.address(1), self.queue, queue_type)
        self.app_.set_current()
        for _ in range(workers):
            self.worker(queue_type)
        return self.app_

    def worker(self, queue_type="classic"):
        log = open(os.path.join(self.logs.name, f"worker-{len(self.workers)}.log"), "w+b")
        command = [sys.executable, "-B", __file__, "--work", queue_type, self.queue, self.address(0)]
        self.workers.append((subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT), log))
        eventually("the worker is ready", lambda: b" ready." in self.said(-1))
        return self.workers[-1][0]

    def said(self, worker):
        """What a worker has logged."""
        with open(self.workers[worker][1].name, "rb") as log:
            return log.read()

    def messages(self, queue):
        """Ready messages of a queue."""
        with self.app_.connection_for_write() as connection:
            return connection.channel().queue_declare(queue, passive=True).message_count

    def end(self, failed):
        for process, log in self.workers:
            process.kill()
            process.wait(STOP_SECONDS)
            log.close()
        if failed:
            for worker in range(len(self.workers)):
                sys.stderr.write(self.said(worker).decode(errors="replace"))
        with self.app_.connection_for_write() as connection:
            channel = connection.channel()
            channel.queue_delete(self.queue)
            channel.exchange_delete(self.queue)
        self.app_.close()
        self.logs.cleanup()


def equal(got, expected, what):
    assert got == expected, f"{what}: got {got!r}, expected {expected!r}"


def within(value, least, most, what):
    assert least <= value <= most, f"{what}: got {value:.2f}, expected {least} to {most}"


def eventually(what, condition):
    """Asks until the condition holds, at most WAIT_SECONDS; its value."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.05)


def value(result):
    return result.get(timeout=WAIT_SECONDS)


# --- checks --------------------------------------------------------------------------------------------------------


@check
def tasks_and_their_results(scene):
    """Publishes are confirmed, tasks done, results come back through a queue of the client's (QUE-05, EXP-01, CNF-02)."""
    app = scene.app(workers=2)
    add = app.tasks["add"]
    equal(value(add.delay(2, 3)), 5, "one task")
    results = [add.delay(n, n) for n in range(200)]
    equal([value(result) for result in results], [2 * n for n in range(200)], "200 tasks")


@check
def tasks_in_chains_and_groups(scene):
    """Tasks published by workers: each link of a chain, each member of a group."""
    app = scene.app()
    add = app.tasks["add"]
    equal(value(celery.chain(add.s(1, 1), add.s(10), add.s(100))()), 112, "chain")
    equal(value(celery.group(add.s(n, 1) for n in range(20))()), list(range(1, 21)), "group")


@check
def a_countdown_kept_by_the_worker(scene):
    """On a classic queue the worker holds the message unacked until its time (ACK-01, QOS-09)."""
    app = scene.app()
    asked = time.time()
    results = {n: app.tasks["now"].apply_async(countdown=n) for n in (3, 1, 2)}
    for n, result in results.items():
        within(value(result) - asked, n, n + 2, f"countdown of {n} s")


@check
def a_task_that_is_tried_again(scene):
    """A retry is a new message with a countdown."""
    app = scene.app()
    equal(value(app.tasks["twice"].delay()), 1, "retries")


@check
def workers_answer_to_remote_control(scene):
    """A fanout exchange, and queues that go with their worker: pidbox (RTE-03, DEL-07)."""
    app = scene.app(workers=2)
    answers = eventually("both answer", lambda: (lambda got: got if len(got) == 2 else None)(app.control.ping(timeout=2)))
    equal([list(answer.values()) for answer in answers], [[{"ok": "pong"}]] * 2, "answers")
    active = app.control.inspect(timeout=2).active_queues()
    equal({queue["name"] for queues in active.values() for queue in queues}, {scene.queue}, "queues worked on")


@check
def a_killed_workers_task_is_done_by_another(scene):
    """Late acks: what a killed worker held comes back, marked redelivered (CONN-32, CON-19)."""
    app = scene.app()
    marker = os.path.join(scene.logs.name, "marker")
    result = app.tasks["slow"].delay(marker)
    eventually("the first worker has begun", lambda: os.path.exists(marker))
    os.kill(scene.workers[0][0].pid, signal.SIGKILL)
    scene.worker()
    equal(value(result), True, "redelivered")


@check
def results_of_quorum_queues(scene):
    """The same over a quorum queue: no channel-wide limit, 28 levels of delay declared and bound (BND-07, ARG-01)."""
    app = scene.app("quorum")
    add = app.tasks["add"]
    equal([value(add.delay(n, 1)) for n in range(50)], list(range(1, 51)), "50 tasks")
    with app.connection_for_write() as connection:
        channel = connection.channel()
        for level in range(28):
            channel.queue_declare(f"celery_delayed_{level}", passive=True)
            channel.exchange_declare(f"celery_delayed_{level}", "topic", passive=True)


@check
def countdowns_kept_by_the_broker(scene):
    """Native delayed delivery: 28 levels of quorum queues with TTL and at-least-once dead-lettering (TTL-06, Q-40)."""
    app = scene.app("quorum")
    asked = time.time()
    results = {n: app.tasks["now"].apply_async(countdown=n) for n in (5, 1, 3, 7, 2)}
    # Kept by the broker, not by the worker: the level of 4 s has those of 5 and 7.
    eventually("two wait at level 2", lambda: scene.messages("celery_delayed_2") == 2)
    for n, result in results.items():
        within(value(result) - asked, n - 0.1, n + 2, f"countdown of {n} s")


# --- running -------------------------------------------------------------------------------------------------------


def run(function, addresses):
    """Runs one check and prints its line; true when it passed."""
    scene, trouble = Scene(addresses, function.__name__), None
    try:
        try:
            function(scene)
        except BaseException:
            scene.end(failed=True)
            raise
        scene.end(failed=False)
    except Exception as error:  # whatever a check meets is its result
        trouble = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(f"not ok {function.__name__}: {trouble}" if trouble else f"ok {function.__name__}", flush=True)
    return trouble is None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="the broker is RabbitMQ 4.0")
    parser.add_argument("--work", nargs=2, metavar=("TYPE", "QUEUE"), help="be a worker")
    parser.add_argument("addresses", nargs="+", metavar="HOST:PORT")
    options = parser.parse_args()
    if options.work:
        queue_type, queue = options.work
        work(options.addresses[0], queue, queue_type)
        return
    logging.disable(logging.WARNING)
    results = [run(function, options.addresses) for function in CHECKS]
    print(json.dumps({"celery": celery.__version__, "kombu": kombu.__version__}))
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    sys.exit(1 if False in results else 0)


if __name__ == "__main__":
    main()
