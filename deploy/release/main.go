// Command release makes a release of Millwright from the last commit of a clone: programs, images, the chart, lists of
// what is in them, release notes and checksums. It needs no registry and no container engine. `make release` calls it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millwright/process/commandline"
)

// allPlatforms are the platforms of a release. For linux a release has all programs and images; for darwin it has only
// millwright, the command line of operators.
const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

const help = `Make a release from the last commit of this clone, without a registry:

  make release VERSION=v0.1.0

writes into bin/release/v0.1.0

  worker, k8sbridge, millwright   as .tar.gz for linux on amd64 and arm64; millwright for darwin, too
  *.cdx.json                   the modules in each program, with their versions (CycloneDX)
  *.oci.tar                    the images for linux on amd64 and arm64, as OCI archives
  millwright-0.1.0.tgz         the Helm chart
  release-notes.md             the section of the version in docs/changelog.md
  SHA256SUMS

PLATFORMS=linux/amd64 makes a part of it, for a trial. The same commit, version and toolchain give the same bytes.
It refuses a version that is no semantic version with a v before it or has no section in docs/changelog.md, a tree with
changes, a version that exists, and one whose names or histories are not those that "make promise" wrote down.`

// release is one run of this program.
type release struct {
	version   string // version of the release, such as v0.1.0
	repo      string // the clone whose last commit is released
	platforms []platform
	progress  io.Writer

	commit         string
	tag            string    // tag of this version; empty: the clone has no such tag yet
	notes          string    // section of this version in the changelog
	commitTime     time.Time // time of the commit; all files get this time
	cloneFolder    string    // a fresh clone of the commit, in which everything is built
	programsFolder string    // the programs, in a folder for each platform and image
	releaseFolder  string    // the folder that becomes bin/release/VERSION
}

func main() {
	c := &cobra.Command{
		Use:   "release VERSION",
		Short: "Make a release from the last commit of a clone",
		Long:  help,
		Args:  cobra.ExactArgs(1),
	}
	repo := c.Flags().String("repo", "../..", "the clone")
	platforms := c.Flags().String("platforms", allPlatforms, "platforms to build for, separated by commas")
	c.RunE = func(c *cobra.Command, args []string) error {
		chosen, err := parsePlatforms(*platforms)
		if err != nil {
			return err
		}
		root, err := filepath.Abs(*repo)
		if err != nil {
			return fmt.Errorf("find the clone: %w", err)
		}
		r := &release{version: args[0], repo: root, platforms: chosen, progress: os.Stderr}
		return r.run(c.Context())
	}
	commandline.Main(c)
}

// run makes the release. Its folder appears complete or not at all.
func (r *release) run(ctx context.Context) (err error) {
	if err := r.check(ctx); err != nil {
		return err
	}
	parent := filepath.Dir(r.outputFolder())
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make the folder of releases: %w", err)
	}
	room, err := os.MkdirTemp(parent, ".building-")
	if err != nil {
		return fmt.Errorf("make room for the build: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(room)) }()
	r.cloneFolder, r.programsFolder, r.releaseFolder = filepath.Join(
		room,
		"tree",
	), filepath.Join(
		room,
		"bin",
	), filepath.Join(
		room,
		"made",
	)
	if err := os.Mkdir(r.releaseFolder, 0o755); err != nil {
		return fmt.Errorf("make room for the files: %w", err)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"clone the commit", r.clone},
		{"compare with what the version promises", r.comparePromises},
		{"build the programs", r.buildPrograms},
		{"pack the programs", r.packPrograms},
		{"list the modules of the programs", r.listModules},
		{"write the images", r.writeImages},
		{"pack the chart", r.packChart},
		{"write the notes and the checksums", r.writeNotesAndChecksums},
	} {
		_, _ = fmt.Fprint(r.progress, step.name)
		began := time.Now()
		if err := step.do(ctx); err != nil {
			_, _ = fmt.Fprintln(r.progress)
			return fmt.Errorf("%s: %w", step.name, err)
		}
		_, _ = fmt.Fprintf(r.progress, ": %s\n", time.Since(began).Round(time.Second))
	}
	if err := os.Rename(r.releaseFolder, r.outputFolder()); err != nil {
		return fmt.Errorf("put the release into its place: %w", err)
	}
	_, _ = fmt.Fprintln(r.progress, "made", r.outputFolder())
	return nil
}

// outputFolder is where the release will be.
func (r *release) outputFolder() string { return filepath.Join(r.repo, "bin", "release", r.version) }

// platform is an operating system with an architecture.
type platform struct{ system, architecture string }

func (p platform) String() string { return p.system + "/" + p.architecture }

// parsePlatforms reads the flag --platforms.
func parsePlatforms(list string) (platforms []platform, err error) {
	known := strings.Split(allPlatforms, ",")
	for name := range strings.SplitSeq(list, ",") {
		system, architecture, _ := strings.Cut(name, "/")
		p := platform{system, architecture}
		if !slices.Contains(known, p.String()) {
			return nil, fmt.Errorf("--platforms has %q: have %s", name, allPlatforms)
		}
		platforms = append(platforms, p)
	}
	return platforms, nil
}
