package stack

import (
	"context"
	"maps"
	"slices"

	"millwright/devstack/build"
	"millwright/devstack/component"
)

// prebuild builds, or finds, the binaries of the chosen components. It returns the plan, still without ports, and the
// supervisor's binary.
func prebuild(ctx context.Context, o Options) (component.Plan, string, error) {
	plan := component.Plan{
		Dir: o.Dir, Repo: o.Repo, Components: o.Components, Binaries: map[string]string{},
		Env: o.Env, Args: o.Args, Quiet: o.Quiet, Timeout: o.Timeout,
	}
	heavy, folders, err := sources(o.Components)
	if err != nil {
		return plan, "", err
	}
	if o.Supervisor == "" {
		folders[build.Devstack] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(heavy)) {
		path, err := build.Heavy(ctx, o.Repo, name, o.Output)
		if err != nil {
			return plan, "", err
		}
		for _, user := range heavy[name] {
			plan.Binaries[user] = path
		}
		if name == build.Kubernetes {
			plan.Kubectl = path
		}
	}
	if len(folders) == 0 {
		return plan, o.Supervisor, nil
	}
	ours, err := build.Products(ctx, o.Repo, o.Output, slices.Sorted(maps.Keys(folders))...)
	if err != nil {
		return plan, "", err
	}
	for folder, users := range folders {
		for _, user := range users {
			plan.Binaries[user] = ours[folder]
		}
	}
	maps.Copy(plan.Binaries, o.Binaries)
	if o.Supervisor != "" {
		return plan, o.Supervisor, nil
	}
	return plan, ours[build.Devstack], nil
}

// sources returns the components by heavy binary, and by folder of our own binaries.
func sources(chosen []string) (heavy, folders map[string][]string, err error) {
	heavy, folders = map[string][]string{}, map[string][]string{}
	for _, name := range chosen {
		c, err := component.Named(name)
		switch {
		case err != nil:
			return nil, nil, err
		case name == component.Bootstrap && !slices.Contains(chosen, component.Temporal): // nothing to do for the starter
		case c.Heavy != "":
			heavy[c.Heavy] = append(heavy[c.Heavy], name)
		default:
			folders[c.Folder] = append(folders[c.Folder], name)
		}
	}
	return heavy, folders, nil
}
