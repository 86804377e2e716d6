// Command release makes a release of Millwright from the last commit of a clone: programs, images, the Helm chart,
// lists of each program's modules, release notes and checksums. The command needs no registry and no container engine.
// `make release` calls the command.
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

// allPlatforms lists the platforms of a release. For linux, a release has all programs and images. For darwin, a
// release has only millwright, the command line for operators.
const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

const helpText = `Make a release from the last commit of this clone, without a registry:

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

// release holds the options and the state of one run of this program.
type release struct {
	version   string // version of the release, such as v0.1.0
	repo      string // path of the clone; the release is made from its last commit
	platforms []platform
	progress  io.Writer

	commit         string
	tag            string    // tag of this version; empty: the clone has no such tag yet
	notes          string    // the version's section of the changelog
	commitTime     time.Time // time of the commit, which becomes the modification time of all files in archives
	cloneFolder    string    // a fresh clone of the commit, used for the build
	programsFolder string    // the built programs, in one folder per platform and image
	releaseFolder  string    // the folder that is renamed to bin/release/VERSION at the end
}

func main() {
	c := &cobra.Command{
		Use:   "release VERSION",
		Short: "Make a release from the last commit of a clone",
		Long:  helpText,
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

// run makes the release. run renames the release's folder at the end, so that the final folder is always complete.
func (r *release) run(ctx context.Context) (err error) {
	if err := r.checkPreconditions(ctx); err != nil {
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
		{"clone the commit", r.cloneCommit},
		{"compare with what the version promises", r.checkPromisedNames},
		{"build the programs", r.buildPrograms},
		{"pack the programs", r.packPrograms},
		{"list the modules of the programs", r.writeModuleLists},
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

// outputFolder returns the release's final folder.
func (r *release) outputFolder() string { return filepath.Join(r.repo, "bin", "release", r.version) }

// platform is an operating system with an architecture.
type platform struct{ operatingSystem, architecture string }

func (p platform) String() string { return p.operatingSystem + "/" + p.architecture }

// parsePlatforms parses the value of the flag --platforms.
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
