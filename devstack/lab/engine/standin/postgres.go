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

// postgresUserID is the user ID of PostgreSQL in the official image.
const postgresUserID = 999

// ImportPostgresImage makes the image name with Debian's PostgreSQL. The image reads the variables POSTGRES_USER and
// POSTGRES_PASSWORD and keeps its data in the volume /var/lib/postgresql/data. output receives the progress.
func ImportPostgresImage(ctx context.Context, e *engine.Engine, name string, output io.Writer) error {
	root, err := engine.RootFolder(ctx, output)
	if err != nil {
		return err
	}
	server, err := findSingleFile(filepath.Join(root, "usr", "lib", "postgresql", "*"))
	if err != nil {
		return err
	}
	bin := filepath.Join("/usr/lib/postgresql", filepath.Base(server), "bin")
	return imageRecipe{
		name: name,
		instructions: []string{
			"ENV PATH=" + bin + ":/usr/bin",
			fmt.Sprintf("USER %[1]d:%[1]d", postgresUserID),
			"VOLUME /var/lib/postgresql/data",
			"STOPSIGNAL SIGINT",
			`ENTRYPOINT ["/entrypoint"]`,
		},
		addFiles: func(a *archiveWriter) error {
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
					isBuildOnlyFolder,
				),
				a.addTree(filepath.Join("/", share), filepath.Join(root, share), nil),
				a.addTextFile(
					"/etc/passwd",
					0o644,
					fmt.Sprintf("postgres:x:%[1]d:%[1]d::/var/lib/postgresql:/bin/sh\n", postgresUserID),
				),
				a.addFolder("/var/lib/postgresql/data", 0o700, postgresUserID),
				a.addTextFile("/entrypoint", 0o755, postgresScript),
			)
		},
	}.importImage(ctx, e)
}

// isBuildOnlyFolder reports whether a folder of PostgreSQL's libraries is needed only for compilation. The folder
// bitcode is for PostgreSQL's JIT compiler, whose library the root folder lacks; the folder pgxs is for building
// extensions.
func isBuildOnlyFolder(name string) bool { return name == "bitcode" || name == "pgxs" }

// findSingleFile returns the only file that matches a pattern, or an error if there is not exactly one.
func findSingleFile(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("found %d files %s instead of one", len(found), pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}
