package commandline

import (
	"runtime/debug"
	"strings"
	"time"
)

// Build says from which code a program was built. A field is empty if the program does not know it.
type Build struct {
	// Version is the version of the program's module: that of a release, or one that the go command has made from the
	// commit. It is empty for a program that was built outside of git.
	Version    string    `json:"version,omitempty"`
	Commit     string    `json:"commit,omitempty"` // full hash
	CommitTime time.Time `json:"commitTime,omitzero"`
	IsModified bool      `json:"modified,omitempty"` // the code was changed after the commit
	GoVersion  string    `json:"go,omitempty"`       // version of Go that built the program
}

// ReadBuild returns the build of this program, which the go command has recorded in it.
func ReadBuild() Build {
	info, known := debug.ReadBuildInfo()
	if !known {
		return Build{}
	}
	return buildOf(info)
}

// develVersion is the version that the go command records if it knows none.
const develVersion = "(devel)"

func buildOf(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version, GoVersion: info.GoVersion}
	if b.Version == develVersion {
		b.Version = ""
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.CommitTime, _ = time.Parse(time.RFC3339, s.Value) // always in this format; zero otherwise
		case "vcs.modified":
			b.IsModified = s.Value == "true"
		}
	}
	return b
}

// shortCommitLength is the number of characters of a commit in a text, as in the versions that the go command makes.
const shortCommitLength = 12

// String returns the build in one line, such as "v0.1.0, commit c5bb2f16d1aa of 2026-11-30, go1.26.8".
func (b Build) String() string {
	parts := []string{b.Version}
	if b.Version == "" {
		parts[0] = "unreleased"
	}
	switch {
	case b.Commit != "":
		commit := "commit " + b.Commit[:min(len(b.Commit), shortCommitLength)]
		if !b.CommitTime.IsZero() {
			commit += " of " + b.CommitTime.UTC().Format(time.DateOnly)
		}
		if b.IsModified {
			commit += " with changes"
		}
		parts = append(parts, commit)
	case b.Version == "":
		parts = append(parts, "commit not recorded")
	}
	if b.GoVersion != "" {
		parts = append(parts, b.GoVersion)
	}
	return strings.Join(parts, ", ")
}

// Version returns ReadBuild in one line, for the flag --version.
func Version() string { return ReadBuild().String() }
