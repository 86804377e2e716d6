package stack

import (
	"context"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"millwright/devstack/build"
	"millwright/devstack/component"
)

// buildBinariesAndPlan finds the binaries of the chosen components, and builds missing binaries. The results are the
// plan, still without ports, and the path of the supervisor's binary.
func buildBinariesAndPlan(ctx context.Context, o Options) (component.Plan, string, error) {
	plan := component.Plan{
		Dir:                o.Dir,
		Repo:               o.Repo,
		Components:         o.Components,
		ExtraComponents:    o.ExtraComponents,
		BinaryPaths:        map[string]string{},
		Env:                o.Env,
		Args:               map[string][]string{},
		UseLongLeases:      o.UseLongLeases,
		NodeLeaseDuration:  o.NodeLeaseDuration,
		StartTimeout:       o.StartTimeout,
		RequireTemporalTLS: o.RequireTemporalTLS,
	}
	maps.Copy(plan.Args, o.Args)
	heavy, folders, err := groupComponentsByProgram(o.Components, o.ExtraComponents)
	if err != nil {
		return plan, "", err
	}
	if o.SupervisorProgramPath == "" {
		folders[build.DevstackFolder] = append(folders[build.DevstackFolder], supervisorLogName)
	}
	for _, name := range slices.Sorted(maps.Keys(heavy)) {
		path, err := build.HeavyBinaryPath(ctx, o.Repo, name, o.Output)
		if err != nil {
			return plan, "", err
		}
		for _, user := range heavy[name] {
			plan.BinaryPaths[user] = path
		}
		if name == build.KubernetesBinary {
			plan.KubernetesBinaryPath = path
		}
	}
	if err := addClusterAPIPrograms(ctx, &plan, o.ClusterAPIRelease, o.Output); err != nil {
		return plan, "", err
	}
	ours, err := build.Products(ctx, o.Repo, o.Output, slices.Sorted(maps.Keys(folders))...)
	if err != nil {
		return plan, "", err
	}
	for folder, users := range folders {
		for _, user := range users {
			plan.BinaryPaths[user] = ours[folder]
		}
	}
	maps.Copy(plan.BinaryPaths, o.BinaryPaths)
	if o.SupervisorProgramPath != "" {
		return plan, o.SupervisorProgramPath, nil
	}
	return plan, ours[build.DevstackFolder], nil
}

// addClusterAPIPrograms adds the binaries of the chosen Cluster API programs, and the folder with their manifests, to a
// plan.
func addClusterAPIPrograms(ctx context.Context, plan *component.Plan, release string, output io.Writer) error {
	// Only the first call of ClusterAPIProgramsFolder may build; later calls find the folder.
	for _, name := range component.ClusterAPINames() {
		if !slices.Contains(plan.Components, name) {
			continue
		}
		var err error
		if plan.ClusterAPIFolder, err = build.ClusterAPIProgramsFolder(ctx, plan.Repo, release, output); err != nil {
			return err
		}
		plan.BinaryPaths[name] = filepath.Join(plan.ClusterAPIFolder, name)
	}
	return nil
}

// groupComponentsByProgram groups the chosen components by program. The keys of heavy are names of heavy binaries. The
// keys of folders are folders of Millwright's own main packages. The values are component names.
func groupComponentsByProgram(
	chosen []string,
	extras []component.ExtraComponent,
) (heavy, folders map[string][]string, err error) {
	heavy, folders = map[string][]string{}, map[string][]string{}
	for _, name := range chosen {
		c, err := component.FindByName(name, extras...)
		switch {
		case err != nil:
			return nil, nil, err
		// without Temporal, bootstrap has no process
		case name == component.Bootstrap && !slices.Contains(chosen, component.Temporal):
		case c.HeavyBinary != "":
			heavy[c.HeavyBinary] = append(heavy[c.HeavyBinary], name)
		case c.MainFolder != "":
			folders[c.MainFolder] = append(folders[c.MainFolder], name)
		}
	}
	return heavy, folders, nil
}
