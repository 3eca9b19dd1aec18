# SPDX-License-Identifier: MIT
# ruff: noqa: F821 - `c` is JupyterHub's
"""A JupyterHub for the course on one machine; docs/hub.md explains it. Settings are environment variables:

ROCM_GUIDE_HUB_USERS     trial (default: any name, one password, one system user), system (PAM) or oauth
ROCM_GUIDE_HUB_STATE     folder of the hub's files (default: build/hub in the clone)
ROCM_GUIDE_HUB_URL       where it listens (default: http://127.0.0.1:8000)
ROCM_GUIDE_HUB_ADMINS    names of admins, separated by commas
ROCM_GUIDE_HUB_GROUP     system group whose members may log in (system users; default: every user with a password)
ROCM_GUIDE_HUB_MEMORY    memory of a learner (default: 4G);  ROCM_GUIDE_HUB_CORES  CPU cores (default: 2)
ROCM_GUIDE_HUB_IDLE      minutes after which an idle server is stopped (default: 60)
ROCM_GUIDE_HUB_MODELS    cache folder whose tiny models learners get (default: that of the user who starts the hub)
ROCM_GUIDE_HUB_PYTHON    the course's Python (default: .venv/bin/python of the clone)
ROCM_GUIDE_HUB_ROOT      folder that holds proc, sys and dev: a pretended machine, for trying out
"""

import os
import secrets
import sys
from pathlib import Path
from urllib.parse import urlsplit

CLONE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CLONE), str(CLONE / "cdna")]

from hub.assign import Assignments  # noqa: E402
from hub.devices import list_devices  # noqa: E402
from hub.kernel import write_kernel  # noqa: E402
from hub.proxy import proxy_command  # noqa: E402
from hub.spawning import folder_of, limits, running_servers, with_device  # noqa: E402
from rocm_guide.common.base import GuideError, cache_folder, own_folder, write_text  # noqa: E402
from rocm_guide.observe.system.machine import Machine  # noqa: E402


def setting(name: str, default: str) -> str:
    return os.environ.get(f"ROCM_GUIDE_HUB_{name}") or default


def number(name: str, default: str) -> float:
    try:
        return float(setting(name, default))
    except ValueError:
        raise GuideError(f"ROCM_GUIDE_HUB_{name}={setting(name, default)!r}: give a number") from None


def kept_secret(file: Path, text: str) -> str:
    """Return the secret in a file that only the hub's user can read; ``text``, where there is none yet."""
    if not file.exists():
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
        write_text(file, text)
    return file.read_text().strip()


users = setting("USERS", "trial")
if users not in ("trial", "system", "oauth"):
    raise GuideError(f"ROCM_GUIDE_HUB_USERS={users!r}: choose trial, system or oauth")
state = own_folder(Path(setting("STATE", str(CLONE / "build/hub"))).absolute())
memory, cores = limits(setting("MEMORY", "4G"), number("CORES", "2"))
write_kernel(Path(sys.prefix), Path(setting("PYTHON", str(CLONE / ".venv/bin/python"))))

# Devices: who has what is known before the hub takes the first request.
machine = Path(setting("ROOT", "/"))
found = list_devices(Machine(machine))
table = Assignments(state, found)
for line in table.recover(running_servers(state / "jupyterhub.sqlite")):
    print(f"devices: {line}", file=sys.stderr)
print(f"devices: {len(found)} to hand out, {len(table.held())} in use", file=sys.stderr)

# The hub, its proxy, its files.
url = urlsplit(setting("URL", "http://127.0.0.1:8000"))
port = url.port or 8000
c.JupyterHub.bind_url = url.geturl()
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{port + 81}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{port + 1}"
c.ConfigurableHTTPProxy.command = proxy_command(Path(sys.prefix))
c.ConfigurableHTTPProxy.pid_file = str(state / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{state / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")
# The proxy's token stays the same, so that a hub that was killed can speak to the proxy that it left behind.
c.ConfigurableHTTPProxy.auth_token = kept_secret(state / "proxy_token", secrets.token_hex(32))
# A hub that goes away leaves learners' servers and their kernels alone, and finds them again.
c.JupyterHub.cleanup_servers = False

# Learners' servers.
command = [sys.executable, "-m", "hub.start_server", "--course", str(CLONE / "notebooks")]
command += ["--models", setting("MODELS", str(cache_folder()))]
c.Spawner.cmd = [*command, "--", sys.executable, "-P", str(CLONE / "hub/singleuser/server.py")]
c.Spawner.default_url = "/lab/tree/rocm-llm-guide"
c.Spawner.mem_limit, c.Spawner.cpu_limit = memory, cores
# A busy machine takes long to import JupyterLab; a learner then waits instead of reading of a failure.
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.Spawner.environment = {
    "PYTHONPATH": f"{CLONE}:{CLONE}/cdna",
    "OMP_NUM_THREADS": "1",
    # Without news from the network, and without what finds language servers: a learner's server starts sooner.
    "JUPYTER_CONFIG_PATH": str(CLONE / "hub/singleuser"),
    **{k: v for k, v in os.environ.items() if k in ("ROCM_GUIDE_CACHE", "CDNA_CACHE", "HF_HOME", "HF_HUB_OFFLINE")},
}
admins = {name.strip() for name in setting("ADMINS", "").split(",") if name.strip()}
c.Authenticator.admin_users = admins

if users == "trial":
    from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
    from jupyterhub.spawner import SimpleLocalProcessSpawner

    class InFolders(SimpleLocalProcessSpawner):
        """A spawner whose homes are folders of the hub's own user: good for trying, no wall between learners."""

        def _home_dir_default(self) -> str:
            return str(state / "homes" / folder_of(self.user.name))

    c.JupyterHub.authenticator_class = SharedPasswordAuthenticator
    c.SharedPasswordAuthenticator.user_password = kept_secret(state / "password", secrets.token_urlsafe(9))
    if admins:  # everybody knows the password above, so that it opens no admin's name
        c.SharedPasswordAuthenticator.admin_password = kept_secret(state / "admin_password", secrets.token_urlsafe(32))
    c.Authenticator.allow_all = True
    c.Spawner.args = ["--allow-root"] if os.geteuid() == 0 else []
    base = InFolders
    print(f"trial: open {url.geturl()} with any name and the password in {state / 'password'}", file=sys.stderr)
    if admins:
        print(f"trial: {', '.join(sorted(admins))}: the password in {state / 'admin_password'}", file=sys.stderr)
    print("trial: all servers run as one system user; for a class take ROCM_GUIDE_HUB_USERS=system", file=sys.stderr)
else:
    if users == "system":
        c.JupyterHub.authenticator_class = "jupyterhub.auth.PAMAuthenticator"
        c.PAMAuthenticator.open_sessions = False
        group = setting("GROUP", "")
        c.PAMAuthenticator.allowed_groups = {group} if group else set()
        c.Authenticator.allow_all = not group
    else:
        from oauthenticator.generic import LocalGenericOAuthenticator

        c.JupyterHub.authenticator_class = LocalGenericOAuthenticator
        for name in ("client_id", "client_secret", "authorize_url", "token_url", "userdata_url", "username_claim"):
            if not (value := setting(f"OAUTH_{name.upper()}", "")):
                raise GuideError(f"ROCM_GUIDE_HUB_OAUTH_{name.upper()} is not set; your identity provider says it")
            setattr(c.LocalGenericOAuthenticator, name, value)
        c.LocalGenericOAuthenticator.scope = ["openid", "profile"]
        c.LocalGenericOAuthenticator.oauth_callback_url = f"{url.geturl().rstrip('/')}/hub/oauth_callback"
        c.Authenticator.allow_existing_users = True
    if os.geteuid():
        raise GuideError(f"ROCM_GUIDE_HUB_USERS={users}: servers of other users are started by root; run it with sudo")
    # Kernels speak through files in a folder of the learner's own, not through ports of the machine.
    c.Spawner.args = ["--KernelManager.transport=ipc"]
    if (machine / "run/systemd/system").exists():
        from systemdspawner import SystemdSpawner as base

        c.SystemdSpawner.isolate_tmp = True
        c.SystemdSpawner.disable_user_sudo = True
        c.SystemdSpawner.default_shell = "/bin/bash"
    else:
        from jupyterhub.spawner import LocalProcessSpawner as base

        print("limits: no systemd here, so memory and cores of a learner are shown but not enforced", file=sys.stderr)

c.JupyterHub.spawner_class = with_device(base, table)

# Idle servers give their device back.
if not 1 <= (minutes := number("IDLE", "60")) <= 100_000:
    raise GuideError(f"ROCM_GUIDE_HUB_IDLE={minutes:g}: minutes, 1 or more")
scopes = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
c.JupyterHub.load_roles = [{"name": "idle-culler", "scopes": scopes, "services": ["idle-culler"]}]
cull = [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={int(minutes * 60)}"]
c.JupyterHub.services = [{"name": "idle-culler", "command": cull}]
