"""The Python in README.md and docs/instrumentation.md runs: python3 -m unittest, from this directory."""

import logging
import pathlib
import re
import unittest

import rollscope_trace
from test_trace import Sample

HERE = pathlib.Path(__file__).resolve().parent


class Offline(rollscope_trace.Sender):
    def __init__(self, url, **kwargs):
        super().__init__("http://127.0.0.1:1", retries=0, **kwargs)


class TestDocs(unittest.TestCase):
    def test_examples_run(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        for path, count in ((HERE / "README.md", 3), (HERE.parent.parent / "docs" / "instrumentation.md", 4)):
            rollscope_trace._state.__init__()
            blocks = re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.S)
            self.assertEqual(len(blocks), count, path)
            sample = Sample(index=0, group_index=0)
            names = {"sample": sample, "samples": [sample], "print": lambda *args: None}
            for number, block in enumerate(blocks):
                block = block.replace("import Sender", "import Sender as _unused")
                names["Sender"] = Offline
                exec(compile(block, "%s, example %d" % (path.name, number + 1), "exec"), names)
            sender = names["sender"]
            sender.close(10)
            self.assertGreater(sum(sender.stats()["dropped_samples"].values()), 0)
            self.assertEqual({k for k in rollscope_trace.stats()["errors"] if not k.startswith("send")}, set())
        names = [event["name"] for event in sample.trace["events"] if event["type"] != "span_end"]
        self.assertEqual(names, ["tool_call", "sandbox_ready", "attempt_start", "verify"])


if __name__ == "__main__":
    unittest.main()
