package docs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// rightsByUserRole returns the rights of each role for people, as VERB RESOURCE, by the role's name without
// "millwright-".
func rightsByUserRole(t *testing.T) map[string][]string {
	t.Helper()
	rights := map[string][]string{}
	for _, file := range []string{"deploy/rbac/people.yaml", "deploy/components/admission/policies.yaml"} {
		for document := range strings.SplitSeq(readFile(t, file), "\n---\n") {
			var role rbacv1.ClusterRole
			require.NoError(t, yaml.Unmarshal([]byte(document), &role))
			if role.Kind != "ClusterRole" {
				continue
			}
			name := strings.TrimPrefix(role.Name, "millwright-")
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights[name] = append(rights[name], verb+" "+resource)
					}
				}
			}
		}
	}
	return rights
}

// Each job of docs/rights.md needs the role that its row names, and no smaller role. Each right of a role is needed for
// a job.
func TestEachJobNeedsExactlyItsDocumentedRole(t *testing.T) {
	roles := rightsByUserRole(t)
	require.Len(t, roles, 3)
	allows := func(needed []string, names ...string) bool {
		var granted []string
		for _, name := range names {
			granted = append(granted, roles[name]...)
		}
		return !slices.ContainsFunc(needed, func(right string) bool { return !slices.Contains(granted, right) })
	}
	served, jobs := map[string][]string{}, 0
	_, table, found := strings.Cut(readFile(t, "docs/rights.md"), "| job |")
	require.True(t, found)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 4 || !strings.HasPrefix(line, "| ") {
			continue
		}
		jobs++
		job, needed := strings.TrimPrefix(cells[0], "| "), strings.Split(cells[2], ", ")
		role, _, _ := strings.Cut(strings.TrimSuffix(cells[3], " |"), ",")
		if role == "own" {
			assert.False(t, allows(needed, "view", "approve", "operate"), "%s: the roles allow it", job)
			continue
		}
		require.Contains(t, roles, role, job)
		assert.True(t, allows(needed, "view", role), "%s: role %s does not allow it", job, role)
		for _, smaller := range []string{"view", "approve"} {
			if role != "view" && smaller != role {
				assert.False(t, allows(needed, "view", smaller), "%s: role %s is enough", job, smaller)
			}
		}
		served[role] = append(served[role], needed...)
	}
	assert.GreaterOrEqual(t, jobs, 20)
	for role, rights := range roles {
		for _, right := range rights {
			assert.Contains(t, served[role], right, "no job needs this right of role %s", role)
		}
	}
}
