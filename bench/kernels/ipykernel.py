"""The same figures for ipykernel by its own client over ZMQ, on the loopback. Prints one line of JSON: seconds, bytes, rates.

argv: the rounds of a warm cell, of a cold start, of ten megabytes, of an interrupt.
"""
import json
import sys
import time

from jupyter_client.manager import KernelManager

WARM, COLD, PRINTS, INTERRUPTS = map(int, sys.argv[1:5])


def median(values):
    return sorted(values)[len(values) // 2]


def ended(client, message, seen=None):
    """Read until the kernel is idle after a message; the size of what it printed."""
    size = 0
    while True:
        news = client.get_iopub_msg(timeout=60)
        if news["parent_header"].get("msg_id") != message:
            continue
        if news["msg_type"] == "stream":
            size += len(news["content"]["text"])
            if seen is not None:
                seen()
                seen = None
        elif news["msg_type"] == "status" and news["content"]["execution_state"] == "idle":
            return size


def run(client, code, seen=None):
    """Seconds from asking for a cell to the later of its reply and its idleness, and what it printed."""
    began = time.perf_counter()
    message = client.execute(code)
    size = ended(client, message, seen)
    while client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != message:
        pass
    return time.perf_counter() - began, size


def started():
    manager = KernelManager(kernel_name="python3")
    began = time.perf_counter()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    run(client, "1+1")
    return manager, client, time.perf_counter() - began


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1]) * 1024


cold = []
for i in range(COLD + 1):
    manager, client, took = started()
    if i:
        cold.append(took)
    if i < COLD:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
warm = [run(client, "1+1")[0] for _ in range(WARM)]
pid = manager.provisioner.process.pid
rss = resident(pid)
prints = []
for _ in range(PRINTS):
    took, size = run(client, "for i in range(100_000): print('%05d' % i + 'x' * 94)")
    assert size == 10_000_000, size
    prints.append(took)
interrupts = []
for _ in range(INTERRUPTS):
    at = []

    def interrupt():
        at.append(time.perf_counter())
        manager.interrupt_kernel()

    run(client, "print('begun', flush=True)\nwhile True: pass", interrupt)
    interrupts.append(time.perf_counter() - at[0])
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps({
    "cold": median(cold), "warm": median(warm), "rss": rss, "print": 10 / median(prints),
    "interrupt": sorted(interrupts)[len(interrupts) * 95 // 100],
}))
