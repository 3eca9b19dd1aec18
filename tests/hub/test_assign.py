# SPDX-License-Identifier: MIT
"""Devices read off a pretended kernel, handed out in turn, and never to two; the table survives what happens to it."""

import asyncio
import json
import multiprocessing
import sqlite3

import pytest

from hub.assign import PATIENCE, Assignments, HubError
from hub.devices import list_devices
from hub.partitions import partition_of
from hub.pretend import pretend_hub_machine
from hub.spawning import NoDeviceFree, folder_of, limits, running_servers, with_device
from rocm_guide.common.base import GuideError


@pytest.mark.parametrize("high_bits", [False, True])
@pytest.mark.parametrize(("compute", "memory", "each"), [("SPX", "NPS1", 1), ("QPX", "NPS1", 4), ("CPX", "NPS4", 8)])
def test_devices_are_numbered_as_the_runtime_does(tmp_path, compute, memory, each, high_bits):
    found = list_devices(pretend_hub_machine(tmp_path, gpus=3, compute=compute, memory=memory, high_bits=high_bits))
    assert [d.number for d in found] == list(range(3 * each)) and len({d.name for d in found}) == 3 * each
    assert [d.partition for d in found] == [*range(each)] * 3 and len({d.gpu for d in found}) == 3
    assert {d.mode for d in found} == {f"{compute}/{memory}"} and {d.units for d in found} == {304 // each}
    assert sum(d.memory for d in found) == 3 * 192 * 2**30 and len({d.file for d in found}) == 3 * each


def test_what_a_container_may_not_read_is_no_device_and_numbers_move_up(tmp_path):
    machine = pretend_hub_machine(tmp_path, gpus=3)
    before = [d.name for d in list_devices(machine)]
    (machine.root / "sys/class/kfd/kfd/topology/nodes/2/properties").write_text("")
    found = list_devices(machine)
    assert [d.name for d in found] == before[1:] and [d.number for d in found] == [0, 1]
    assert list_devices(pretend_hub_machine(tmp_path / "none", gpus=0)) == []


def table(tmp_path, clock=lambda: 1000.0, **modes):
    return Assignments(tmp_path / "state", list_devices(pretend_hub_machine(tmp_path, **modes)), clock=clock)


def test_first_come_first_served_and_nobody_overtakes(tmp_path):
    t = table(tmp_path, gpus=2)
    assert [t.ask(s).device.number for s in ("ann", "bob")] == [0, 1]
    assert [t.ask(s).place for s in ("cyd", "dan", "eve")] == [1, 2, 3]
    assert t.ask("ann").device.number == 0, "a server that asks again keeps its device"
    t.give_back("bob")
    assert t.ask("eve").place == 2 and t.ask("dan").place == 1
    assert t.ask("cyd").device.number == 1
    t.give_back("dan")
    assert t.ask("eve").place == 1 and t.waiting() == ["eve"]


def test_who_went_away_does_not_hold_up_the_others(tmp_path):
    now = [0.0]
    t = table(tmp_path, lambda: now[0], gpus=1)
    t.ask("ann"), t.ask("bob"), t.ask("cyd")
    now[0] = PATIENCE
    assert t.ask("cyd").place == 2
    now[0] += 1
    assert t.ask("cyd").place == 1
    t.give_back("ann")
    assert t.ask("cyd").device is not None


def test_partitions_of_idle_gpus_come_first(tmp_path):
    t = table(tmp_path, gpus=2, compute="CPX")
    assert [t.ask(s).device.number for s in "abcd"] == [0, 8, 1, 9]


def test_a_new_hub_finds_the_table_and_mends_it(tmp_path):
    table(tmp_path, gpus=2).ask("ann")
    t = table(tmp_path, gpus=2)
    name = t.held()["ann"]
    t.ask("bob")
    assert t.recover({"ann": name}) == ["bob does not run any more: 0000:1c:00.0#0 is free again"]
    t.file.unlink()
    assert t.recover({"ann": name}) == [f"ann still runs: {name} is held for it"]
    assert t.recover({"ann": name}) == [] and t.ask("bob").device.name != name
    assert "share" in t.recover({"ann": name, "bob": t.held()["bob"], "cyd": name})[0]
    other = table(tmp_path / "other", gpus=0)
    assert "which is gone" in other.recover({"ann": name})[-1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"held": 3}', '{"held": {}, "waiting": {"a": "x"}}', "\0" * 9])
def test_a_damaged_table_hands_out_nothing(tmp_path, text):
    t = table(tmp_path, gpus=1)
    t.file.write_text(text)
    with pytest.raises(HubError, match="not the table of devices"):
        t.ask("ann")
    assert t.file.read_text() == text


def test_a_full_disk_hands_out_nothing(tmp_path, monkeypatch):
    t = table(tmp_path, gpus=1)
    t.ask("ann")
    before = t.file.read_bytes()

    def full(path, text):
        raise GuideError(f"{path}: cannot be written (No space left on device); choose another")

    monkeypatch.setattr("hub.assign.write_text", full)
    with pytest.raises(HubError, match=r"No space left.*free some space"):
        t.give_back("ann")
    bob = with_device(Spawner, t)("bob")
    with pytest.raises(HubError) as e:
        asyncio.run(bob.run_pre_spawn_hook())
    assert "free some space" in e.value.jupyterhub_message, "the learner reads it on the page"
    assert bob.device_name == "" and bob.environment == {"A": "1"}
    monkeypatch.undo()
    assert t.file.read_bytes() == before and t.ask("bob").place == 1


def _ask(folder, machine, names, out):
    t = Assignments(folder, list_devices(machine))
    for name in names:
        answer = t.ask(name)
        out.put((name, answer.device.name if answer.device else None))


def test_processes_that_ask_at_once_never_get_the_same_device(tmp_path):
    context = multiprocessing.get_context("fork")
    machine, out = pretend_hub_machine(tmp_path, gpus=2, compute="CPX"), context.Queue()
    jobs = [[f"{i}-{k}" for k in range(6)] for i in range(4)]
    ps = [context.Process(target=_ask, args=(tmp_path / "state", machine, names, out)) for names in jobs]
    for p in ps:
        p.start()
    got = [out.get(timeout=120) for _ in range(24)]
    for p in ps:
        p.join()
    names = [name for _, name in got if name]
    assert len(names) == len(set(names)) == 16


class Spawner:
    """What :func:`with_device` asks of JupyterHub's spawner."""

    def __init__(self, name):
        self.user, self.name, self.environment, self.state = type("User", (), {"name": name}), "", {"A": "1"}, {}

    def run_pre_spawn_hook(self):
        return None

    async def run_post_stop_hook(self):
        self.stopped = True

    async def progress(self):
        yield {"message": "from the spawner itself"}

    def get_state(self):
        return {"pid": 7}

    def load_state(self, state):
        self.state = state

    def clear_state(self):
        self.state = {}


def test_a_spawner_waits_says_so_and_gives_back(tmp_path):
    t = table(tmp_path, gpus=1)
    kind = with_device(Spawner, t, wait=60, every=0.01)

    async def class_of_two():
        ann, bob = kind("ann"), kind("bob")
        await ann.run_pre_spawn_hook()
        assert ann.environment == {"A": "1", "ROCR_VISIBLE_DEVICES": "0", "ROCM_GUIDE_HUB_DEVICE": ann.device_name}
        assert ann.get_state() == {"pid": 7, "device_name": "0000:0c:00.0#0"}
        waiting = asyncio.create_task(bob.run_pre_spawn_hook())
        await asyncio.sleep(0)
        said = []

        async def watch():
            async for event in bob.progress():
                said.append(event["message"])

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.05)
        assert not waiting.done() and "nobody is before you" in said[0]
        await ann.run_post_stop_hook()
        assert ann.stopped
        await asyncio.gather(waiting, watching)
        assert bob.environment["ROCR_VISIBLE_DEVICES"] == "0" and said[-1] == "from the spawner itself"

    asyncio.run(class_of_two())


def test_who_waits_too_long_is_told_and_keeps_the_place(tmp_path):
    t = table(tmp_path, gpus=1)
    t.ask("ann"), t.ask("bob")
    kind = with_device(Spawner, t, wait=0, every=0.01)
    cyd = kind("cyd")
    with pytest.raises(NoDeviceFree) as e:
        asyncio.run(cyd.run_pre_spawn_hook())
    asyncio.run(cyd.run_post_stop_hook())  # as JupyterHub does after a failure
    assert "one learner is before you" in e.value.jupyterhub_message and t.waiting() == ["bob", "cyd"]


def test_a_machine_without_a_gpu_asks_for_none(tmp_path):
    kind = with_device(Spawner, table(tmp_path, gpus=0))
    ann = kind("ann")
    asyncio.run(ann.run_pre_spawn_hook())
    assert ann.environment == {"A": "1"} and ann.device_name == ""


def test_the_servers_that_ran_are_read_from_the_hubs_database(tmp_path):
    file = tmp_path / "jupyter hub?.sqlite"
    with sqlite3.connect(file) as db:
        assert running_servers(file) == {}
        db.execute("CREATE TABLE users (id INTEGER, name TEXT)")
        db.execute("CREATE TABLE spawners (user_id INTEGER, name TEXT, state TEXT, server_id INTEGER)")
        db.executemany("INSERT INTO users VALUES (?, ?)", [(1, "ann"), (2, "bob")])
        rows = [(1, "", json.dumps({"device_name": "x#0"}), 4), (1, "b", "{}", 5), (2, "", None, None)]
        db.executemany("INSERT INTO spawners VALUES (?, ?, ?, ?)", rows)
    assert running_servers(file) == {"ann": "x#0", "ann/b": ""}
    for state in ("{", "[1]", '"x#0"', b"\xff", "[" * 100_000):  # else a device in use would be given again
        with sqlite3.connect(file) as db:
            db.execute("UPDATE spawners SET state = ? WHERE server_id = 4", (state,))
        with pytest.raises(HubError, match="cannot be read as a hub's"):
            running_servers(file)
    file.write_bytes(b"no database, whatever its name says" * 99)
    with pytest.raises(HubError, match="cannot be read as a hub's"):
        running_servers(file)


@pytest.mark.parametrize("said", ["1" + "0" * 400, '"soon"', "[1]", "1e5, "])
def test_a_time_that_is_none_is_no_table_of_devices(tmp_path, said):
    t = table(tmp_path)
    t.file.write_text(f'{{"held": {{}}, "waiting": {{"ann": {said}}}}}')
    with pytest.raises(HubError, match="not the table of devices"):
        t.waiting()


def test_no_two_users_share_a_folder_and_none_leaves_it():
    names = [
        "ann",
        "Ann",
        "a n",
        "a_n",
        "_",
        "",
        "..",
        "../ann",
        "ann/..",
        "ä",
        "a\u0308",
        "a@b.c",
        "x\ny",
        "_61_",
        "a",
    ]
    folders = [folder_of(n) for n in names if n]
    assert len(set(folders)) == len(folders)
    assert all(f.isascii() and "/" not in f and "." not in f for f in folders)


@pytest.mark.parametrize(("memory", "cores"), [("4", 1), ("4 G", 1), ("0G", 1), ("4G", 0), ("4G", float("nan"))])
def test_limits_that_are_none_are_refused(memory, cores):
    with pytest.raises(GuideError, match="of a learner"):
        limits(memory, cores)


@pytest.mark.parametrize(("compute", "memory", "said"), [("TPX", "NPS1", "no such mode"), ("DPX", "NPS4", "take NPS2")])
def test_modes_that_an_mi300x_has_not_are_refused(compute, memory, said):
    with pytest.raises(GuideError, match=said):
        partition_of(compute, memory)
