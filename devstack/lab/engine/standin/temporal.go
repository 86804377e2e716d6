package standin

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"millwright/devstack/build"
	"millwright/devstack/lab/engine"
)

// The user of Temporal's official images. The server asks for its name.
const (
	temporalUser  = "USER 1000:1000"
	temporalUsers = "temporal:x:1000:1000::/home/temporal:/bin/sh\n"
)

// netcat is for the health check "nc -z HOST PORT": the official image's busybox knows -z, and Debian's does not.
const netcat = `#!/bin/sh
[ "$1" = -z ] && exec busybox nc -w 1 "$2" "$3" -e /usr/bin/true
exec busybox nc "$@"
`

// TemporalNames are the names of the images of Temporal.
type TemporalNames struct{ Server, AdminTools, UI string }

// Temporal makes the images of Temporal with these names. Their programs, the server's entrypoint and the UI's
// configuration are those of the official images, in the versions of devstack/temporal. It builds the programs unless
// the cache has them. repo is the root of the clone; output receives the progress.
func Temporal(ctx context.Context, e *engine.Engine, repo string, names TemporalNames, output io.Writer) error {
	root, err := engine.Root(ctx, output)
	if err != nil {
		return err
	}
	programs, err := build.Official(ctx, repo, output)
	if err != nil {
		return err
	}
	server, err := moduleFolder(ctx, repo, "go.temporal.io/server")
	if err != nil {
		return err
	}
	ui, err := moduleFolder(ctx, repo, "github.com/temporalio/ui-server/v2")
	if err != nil {
		return err
	}
	const bin = "/usr/local/bin"
	environment := "ENV PATH=" + bin + ":/usr/bin"
	return loadAll(ctx, e,
		image{
			name:    names.Server,
			changes: []string{environment, temporalUser, "WORKDIR /etc/temporal", `CMD ["/etc/temporal/entrypoint.sh"]`},
			fill: func(a *archive) error {
				return errors.Join(
					a.shell(root, "awk", "hostname", "true"),
					a.text("/usr/bin/nc", 0o755, netcat),
					a.programs(bin, "/", filepath.Join(programs, build.TemporalServer), "/usr/bin/getent"), // the entrypoint's
					a.text("/etc/passwd", 0o644, temporalUsers),
					a.text("/etc/nsswitch.conf", 0o644, "hosts: files dns\n"),
					a.script("/etc/temporal/entrypoint.sh", filepath.Join(server, "docker", "scripts", "sh", "entrypoint.sh")),
				)
			},
		},
		image{
			name:    names.AdminTools,
			changes: []string{environment, temporalUser},
			fill: func(a *archive) error {
				return errors.Join(
					a.shell(root),
					a.programs(bin, "/", filepath.Join(programs, build.TemporalSQLTool)),
				)
			},
		},
		image{
			name: names.UI,
			changes: []string{
				"ENV PATH=/usr/bin",
				temporalUser,
				"WORKDIR /home/ui-server",
				`ENTRYPOINT ["./ui-server", "--env", "docker", "start"]`,
			},
			fill: func(a *archive) error {
				return errors.Join(
					a.shell(root, "wget"),
					a.programs("/home/ui-server", "/", filepath.Join(programs, build.TemporalUI)),
					a.file("/home/ui-server/config/docker.yaml", filepath.Join(ui, "config", "docker.yaml")),
				)
			},
		},
	)
}

// moduleFolder returns the folder of a module that devstack/temporal uses.
func moduleFolder(ctx context.Context, repo, module string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = filepath.Join(repo, "devstack", build.Temporal)
	out, err := list.Output()
	return strings.TrimSpace(string(out)), err
}
