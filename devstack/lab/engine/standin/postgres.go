package standin

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"millwright/devstack/lab/engine"
)

//go:embed postgres.sh
var postgresScript string

// postgresUser is the user of the official image's server.
const postgresUser = 999

// Postgres makes the image with this name, with Debian's PostgreSQL. It knows the variables POSTGRES_USER and
// POSTGRES_PASSWORD, and keeps its data in the volume /var/lib/postgresql/data. output receives the progress.
func Postgres(ctx context.Context, e *engine.Engine, name string, output io.Writer) error {
	root, err := engine.Root(ctx, output)
	if err != nil {
		return err
	}
	server, err := onlyMatch(filepath.Join(root, "usr", "lib", "postgresql", "*"))
	if err != nil {
		return err
	}
	bin := filepath.Join("/usr/lib/postgresql", filepath.Base(server), "bin")
	return imageRecipe{
		name: name,
		changes: []string{
			"ENV PATH=" + bin + ":/usr/bin",
			fmt.Sprintf("USER %[1]d:%[1]d", postgresUser),
			"VOLUME /var/lib/postgresql/data",
			"STOPSIGNAL SIGINT",
			`ENTRYPOINT ["/entrypoint"]`,
		},
		fill: func(a *archive) error {
			share := filepath.Join("usr", "share", "postgresql")
			var programs []string
			for _, program := range []string{"initdb", "postgres", "pg_isready", "psql"} {
				programs = append(programs, filepath.Join(server, "bin", program))
			}
			return errors.Join(
				a.addShell(root, "rm"),
				a.addPrograms(bin, root, programs...),
				a.addTree(
					filepath.Join("/usr/lib/postgresql", filepath.Base(server), "lib"),
					filepath.Join(server, "lib"),
					isBitcode,
				),
				a.addTree(filepath.Join("/", share), filepath.Join(root, share), nil),
				a.addText("/etc/passwd", 0o644, fmt.Sprintf("postgres:x:%[1]d:%[1]d::/var/lib/postgresql:/bin/sh\n", postgresUser)),
				a.addFolder("/var/lib/postgresql/data", 0o700, postgresUser),
				a.addText("/entrypoint", 0o755, postgresScript),
			)
		},
	}.load(ctx, e)
}

// isBitcode reports whether only compilers need a file. The folder bitcode is for PostgreSQL's compiler at run time,
// whose library is not in the root folder; pgxs is for compiling extensions of PostgreSQL.
func isBitcode(name string) bool { return name == "bitcode" || name == "pgxs" }

// onlyMatch returns the one file that matches a pattern.
func onlyMatch(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("found %d files %s instead of one", len(found), pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}
