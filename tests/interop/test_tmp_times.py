import json, time, subprocess, sys
from tests.interop.test_servers import subject, web_address, _delta_mcp  # noqa: F401
from tests.interop import raw
def test_times(subject):  # noqa: F811
    t=time.time()
    with raw.started(subject.words, subject.environment) as r: r.tools()
    t1=time.time()
    ran=_delta_mcp("list", subject); t2=time.time()
    said=json.loads(ran.stdout)
    def n(*a):
        t=time.time(); p=subprocess.run([sys.executable.replace("python","delta-mcp") if False else "/work/main/.venv/bin/delta-mcp","list","--json",*a,*subject.words],env=subject.environment,cwd=subject.folder,capture_output=True,text=True); return f"{time.time()-t:.1f}/{p.returncode}"
    with open("/tmp/times.txt","a") as f: print(f"{subject.name:20} raw {t1-t:.1f} cli {t2-t1:.1f} handshake {n('--speak','handshake')} {said['server']} {said['tokens']} stderr={ran.stderr[-200:]!r}",file=f)
