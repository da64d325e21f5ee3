"""What a check has passed with, as a line of JSON: row.py wheel asks torch, row.py unit asks systemd."""

import datetime
import json
import os
import platform
import subprocess
import sys

row = {
    "check": sys.argv[1],
    "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    "commit": os.environ.get("COMMIT", ""),
    "distribution": platform.freedesktop_os_release()["PRETTY_NAME"],
    "kernel": platform.release(),
    "glibc": platform.libc_ver()[1],
}
if row["check"] == "wheel":
    import torch

    row |= {"python": platform.python_version(), "torch": torch.__version__, "backend": "mcast"}
else:
    said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True).stdout
    row["systemd"] = said.split()[1]
print(json.dumps(row))
