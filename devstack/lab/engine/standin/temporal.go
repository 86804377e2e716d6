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

// The user of Temporal's official images. The server looks up the user's name.
const (
	temporalUserInstruction = "USER 1000:1000"
	temporalPasswdEntry     = "temporal:x:1000:1000::/home/temporal:/bin/sh\n"
)

// netcatScript replaces nc for the health check "nc -z HOST PORT", because Debian's busybox does not support -z.
const netcatScript = `#!/bin/sh
[ "$1" = -z ] && exec busybox nc -w 1 "$2" "$3" -e /usr/bin/true
exec busybox nc "$@"
`

// TemporalImageNames are the names of Temporal's images.
type TemporalImageNames struct{ Server, AdminTools, UI string }

// ImportTemporalImages makes Temporal's images with these names. The images have the official programs, server
// entrypoint and UI configuration, in the versions of devstack/temporal. ImportTemporalImages builds the programs
// unless the cache has them. repo is the root of the clone; output receives the progress.
func ImportTemporalImages(
	ctx context.Context,
	e *engine.Engine,
	repo string,
	names TemporalImageNames,
	output io.Writer,
) error {
	root, err := engine.RootFolder(ctx, output)
	if err != nil {
		return err
	}
	programs, err := build.TemporalProgramsFolder(ctx, repo, output)
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
	return importImages(ctx, e,
		imageRecipe{
			name: names.Server,
			instructions: []string{
				environment,
				temporalUserInstruction,
				"WORKDIR /etc/temporal",
				`CMD ["/etc/temporal/entrypoint.sh"]`,
			},
			addFiles: func(a *archiveWriter) error {
				return errors.Join(
					a.addShell(root, "awk", "hostname", "true"),
					a.addTextFile("/usr/bin/nc", 0o755, netcatScript),
					a.addPrograms(
						bin,
						"/",
						filepath.Join(programs, build.TemporalServerProgram),
						"/usr/bin/getent",
					), // for the entrypoint
					a.addTextFile("/etc/passwd", 0o644, temporalPasswdEntry),
					a.addTextFile("/etc/nsswitch.conf", 0o644, "hosts: files dns\n"),
					a.addScript("/etc/temporal/entrypoint.sh", filepath.Join(server, "docker", "scripts", "sh", "entrypoint.sh")),
				)
			},
		},
		imageRecipe{
			name:         names.AdminTools,
			instructions: []string{environment, temporalUserInstruction},
			addFiles: func(a *archiveWriter) error {
				return errors.Join(
					a.addShell(root),
					a.addPrograms(bin, "/", filepath.Join(programs, build.TemporalSQLToolProgram)),
				)
			},
		},
		imageRecipe{
			name: names.UI,
			instructions: []string{
				"ENV PATH=/usr/bin",
				temporalUserInstruction,
				"WORKDIR /home/ui-server",
				`ENTRYPOINT ["./ui-server", "--env", "docker", "start"]`,
			},
			addFiles: func(a *archiveWriter) error {
				return errors.Join(
					a.addShell(root, "wget"),
					a.addPrograms("/home/ui-server", "/", filepath.Join(programs, build.TemporalUIProgram)),
					a.addFile("/home/ui-server/config/docker.yaml", filepath.Join(ui, "config", "docker.yaml")),
				)
			},
		},
	)
}

// moduleFolder returns the folder of a module in the version that devstack/temporal requires.
func moduleFolder(ctx context.Context, repo, module string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = filepath.Join(repo, "devstack", build.TemporalBinary)
	out, err := list.Output()
	return strings.TrimSpace(string(out)), err
}
