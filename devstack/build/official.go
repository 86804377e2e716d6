package build

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"
)

// The names of the programs in Temporal's official images.
const (
	TemporalServerProgram  = "temporal-server"
	TemporalSQLToolProgram = "temporal-sql-tool"
	TemporalUIProgram      = "ui-server"
)

// temporalProgramPackages returns the main package of each program in Temporal's official images. The go.mod of
// devstack/temporal names these packages as tools.
func temporalProgramPackages() map[string]string {
	return map[string]string{
		TemporalServerProgram:  "go.temporal.io/server/cmd/server",
		TemporalSQLToolProgram: "go.temporal.io/server/cmd/tools/sql",
		TemporalUIProgram:      "github.com/temporalio/ui-server/v2/cmd/server",
	}
}

// TemporalProgramsFolder returns a folder with the programs of Temporal's official images. The programs have the same
// names as in the official images, and the versions of the module devstack/temporal. If the cache lacks the folder,
// TemporalProgramsFolder builds the programs. Callers should build the heavy binary Temporal first, because its build
// compiles nearly all packages that TemporalProgramsFolder links.
func TemporalProgramsFolder(ctx context.Context, repo string, progress io.Writer) (string, error) {
	module := filepath.Join(repo, "devstack", TemporalBinary)
	flags, err := goBuildFlags(TemporalBinary, module)
	if err != nil {
		return "", err
	}
	key, err := cacheKey(ctx, module, flags, goEnvironment(TemporalBinary))
	if err != nil {
		return "", fmt.Errorf("compute cache key of Temporal's programs: %w", err)
	}
	packages := temporalProgramPackages()
	recipe := fmt.Sprintf("%s %v", key, packages)
	return CachedFolder(ctx, "official", recipe, progress, func(dir string) error {
		_, _ = fmt.Fprintln(
			progress,
			"building the programs of Temporal's images: a minute or so after the local stack's Temporal, once",
		)
		began := time.Now()
		for _, name := range []string{TemporalServerProgram, TemporalSQLToolProgram, TemporalUIProgram} {
			arguments := slices.Concat([]string{"build", "-v", "-o", filepath.Join(dir, name)}, flags, []string{packages[name]})
			if err := runGoCommand(ctx, module, name, goEnvironment(TemporalBinary), arguments, progress); err != nil {
				return err
			}
		}
		_, _ = fmt.Fprintf(progress, "built them in %s\n", time.Since(began).Round(time.Second))
		return nil
	})
}
