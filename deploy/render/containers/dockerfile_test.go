package containers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dockerfile is a Dockerfile, parsed by BuildKit.
type dockerfile struct{ stages []instructions.Stage }

func parseDockerfile(text []byte) (dockerfile, error) {
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return dockerfile{}, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	return dockerfile{stages}, err
}

// readDockerfile parses a Dockerfile in deploy/image.
func readDockerfile(t *testing.T, name string) dockerfile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repoRoot(t), "deploy/image", name))
	require.NoError(t, err)
	file, err := parseDockerfile(text)
	require.NoError(t, err)
	return file
}

// predefinedArguments are the build arguments that BuildKit sets for each platform.
var predefinedArguments = []string{
	"BUILDPLATFORM",
	"BUILDOS",
	"BUILDARCH",
	"BUILDVARIANT",
	"TARGETPLATFORM",
	"TARGETOS",
	"TARGETARCH",
	"TARGETVARIANT",
}

// findFaults returns an error text for each mistake in a Dockerfile. folder is the build context; given are the names
// of the build arguments.
func (d dockerfile) findFaults(folder string, given ...string) []string {
	var all []string
	for i, stage := range d.stages {
		if from := stage.BaseName; from != "scratch" && !d.hasStage(from, i) &&
			!regexp.MustCompile(`^[\w./-]+:[\w.-]+$`).MatchString(from) {
			all = append(all, fmt.Sprintf("FROM %s: it is no stage, and no image with a version", from))
		}
		var known []string // names of declared variables
		for _, command := range stage.Commands {
			switch c := command.(type) {
			case *instructions.ArgCommand:
				for _, a := range c.Args {
					known = append(known, a.Key)
					if a.Value == nil && !slices.Contains(predefinedArguments, a.Key) && !slices.Contains(given, a.Key) {
						all = append(all, fmt.Sprintf("ARG %s: nobody sets it", a.Key))
					}
				}
			case *instructions.EnvCommand:
				for _, e := range c.Env {
					known = append(known, e.Key)
				}
			case *instructions.CopyCommand:
				all = append(all, d.findCopyCommandFaults(c, i, folder)...)
			case *instructions.RunCommand:
				for _, used := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(strings.Join(c.CmdLine, " "), -1) {
					if !slices.Contains(known, used[1]) {
						all = append(all, fmt.Sprintf("RUN: $%s is not declared", used[1]))
					}
				}
			}
		}
	}
	return all
}

// findCopyCommandFaults returns an error text for each source of a COPY instruction that does not exist.
func (d dockerfile) findCopyCommandFaults(c *instructions.CopyCommand, stage int, folder string) []string {
	if c.From != "" {
		if d.hasStage(c.From, stage) {
			return nil
		}
		return []string{fmt.Sprintf("COPY --from=%s: no such stage before", c.From)}
	}
	var all []string
	for _, source := range c.SourcePaths {
		if found, err := filepath.Glob(filepath.Join(folder, source)); err != nil || len(found) == 0 {
			all = append(all, fmt.Sprintf("COPY %s: the builder does not see it", source))
		}
	}
	return all
}

// hasStage reports whether one of the first `among` stages has this name.
func (d dockerfile) hasStage(name string, among int) bool {
	return slices.ContainsFunc(d.stages[:among], func(s instructions.Stage) bool { return s.Name == name })
}

// argumentNames returns the names of all ARG instructions.
func (d dockerfile) argumentNames() []string {
	var all []string
	for _, stage := range d.stages {
		for _, command := range stage.Commands {
			if c, isArg := command.(*instructions.ArgCommand); isArg {
				for _, a := range c.Args {
					all = append(all, a.Key)
				}
			}
		}
	}
	return all
}

// compiledPackages returns the packages that the Dockerfile compiles into /out. The last element of a package's path is
// the program's name in the image.
func (d dockerfile) compiledPackages() (packages []string) {
	for _, stage := range d.stages {
		for _, command := range stage.Commands {
			if c, isRun := command.(*instructions.RunCommand); isRun {
				if line := regexp.MustCompile(`go build .* -o /out/\w* (.*)`).
					FindStringSubmatch(strings.Join(c.CmdLine, " ")); line != nil {
					packages = append(packages, strings.Fields(line[1])...)
				}
			}
		}
	}
	return packages
}

// The check reports each misspelt name in a Dockerfile.
func TestDockerfileCheckFindsMisspeltNames(t *testing.T) {
	const sound = `FROM --platform=$BUILDPLATFORM golang:1 AS build
ARG MODULE
ARG TARGETOS
COPY go.mod ./
RUN cd ${MODULE} && GOOS=$TARGETOS go build -o /out/provider ./worker
FROM scratch
COPY --from=build /out/ /
`
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go.mod"), nil, 0o600))
	file, err := parseDockerfile([]byte(sound))
	require.NoError(t, err)
	require.Empty(t, file.findFaults(folder, "MODULE"))
	for name, row := range map[string]struct{ from, to, want string }{
		"an argument that nobody sets": {"ARG MODULE", "ARG MODUL", "ARG MODUL: nobody sets it"},
		"a variable":                   {"${MODULE}", "${MODUEL}", "RUN: $MODUEL is not declared"},
		"a variable of the builder":    {"ARG TARGETOS", "ARG TARGET_OS", "ARG TARGET_OS: nobody sets it"},
		"a stage":                      {"--from=build", "--from=biuld", "COPY --from=biuld: no such stage before"},
		"a stage that comes later":     {"AS build", "AS other", "COPY --from=build: no such stage before"},
		"a file":                       {"COPY go.mod", "COPY go.mods", "COPY go.mods: the builder does not see it"},
		"an image without a version":   {"golang:1", "golang", "FROM golang: it is no stage, and no image with a version"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(sound, row.from))
			file, err := parseDockerfile([]byte(strings.Replace(sound, row.from, row.to, 1)))
			require.NoError(t, err)
			assert.Contains(t, file.findFaults(folder, "MODULE"), row.want)
		})
	}
	for name, row := range map[string][2]string{
		"an instruction": {"COPY go.mod", "COPPY go.mod"},
		"a flag":         {"--from=build", "--form=build"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseDockerfile([]byte(strings.Replace(sound, row[0], row[1], 1)))
			assert.Error(t, err)
		})
	}
}
