package extension

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"millwright/observe/capi/capitest"
)

func TestCanUpdateComparesFieldsOfAMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*clusterv1.MachineSpec)
		want   []string
	}{
		"nothing":       {func(*clusterv1.MachineSpec) {}, nil},
		"version":       {func(m *clusterv1.MachineSpec) { m.Version = "v1.32.0" }, []string{"spec.template.spec.version"}},
		"failureDomain": {func(m *clusterv1.MachineSpec) { m.FailureDomain = "a" }, []string{"spec.template.spec.failureDomain"}},
		"both": {
			func(m *clusterv1.MachineSpec) { m.Version, m.FailureDomain = "v1.32.0", "a" },
			[]string{"spec.template.spec.failureDomain", "spec.template.spec.version"},
		},
		"clusterName":       {func(m *clusterv1.MachineSpec) { m.ClusterName = "d" }, nil},
		"providerID":        {func(m *clusterv1.MachineSpec) { m.ProviderID = "x://y" }, nil},
		"bootstrap":         {func(m *clusterv1.MachineSpec) { m.Bootstrap.ConfigRef.Name, m.Bootstrap.DataSecretName = "x", new("y") }, nil},
		"infrastructureRef": {func(m *clusterv1.MachineSpec) { m.InfrastructureRef.Name = "x" }, nil},
		"minReadySeconds":   {func(m *clusterv1.MachineSpec) { m.MinReadySeconds = new(int32(9)) }, nil},
		"readinessGates": {func(m *clusterv1.MachineSpec) {
			m.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "X"}}
		}, nil},
		"taints": {func(m *clusterv1.MachineSpec) { m.Taints = []clusterv1.MachineTaint{{Key: "x", Effect: "NoSchedule"}} }, nil},
		"deletion": {func(m *clusterv1.MachineSpec) {
			m.Deletion = clusterv1.MachineDeletionSpec{NodeDrainTimeoutSeconds: new(int32(1)), NodeVolumeDetachTimeoutSeconds: new(int32(2)), NodeDeletionTimeoutSeconds: new(int32(3))}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			former, current := capitest.NewSet("before", 3), capitest.NewSet("after", 0)
			c.change(&current.Spec.Template.Spec)
			// only spec.template.spec is compared
			current.Spec.Template.Annotations, current.Spec.MachineNaming.Template = nil, "other"
			var got []string
			all, err := diffSets(*former, *current, hooksv1.Patch{})
			require.NoError(t, err)
			for _, d := range all {
				assert.Equal(t, "MachineSet", d.kind)
				got = append(got, d.path)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestCanUpdateDropsFieldsThatAMachineDoesNotHave(t *testing.T) {
	t.Parallel()
	s := capitest.NewSet("s", 3)
	for _, patch := range []string{`{"spec":{"template":{"spec":{"color":"red","deletion":{}}}}}`, `[{"op":"add","path":"/spec/template/spec/color","value":"red"}]`} {
		all, err := diffSets(*s, *s, newPatch(patch))
		require.NoError(t, err)
		assert.Empty(t, all)
	}
}

func TestCanUpdateComparesFieldsOfATemplate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		former, current string
		want            []string
	}{
		"nothing differs":       {`{"a":{"b":[1,{"c":"d"}]},"e":null}`, `{"e":null,"a":{"b":[1,{"c":"d"}]}}`, nil},
		"a text":                {`{"a":{"b":"x"}}`, `{"a":{"b":"y"}}`, []string{".a.b"}},
		"sorted":                {`{"b":1,"c":1,"a":1}`, `{"c":2,"a":2,"b":2}`, []string{".a", ".b", ".c"}},
		"only the former":       {`{"a":{"b":{"c":1}}}`, `{"a":{}}`, []string{".a.b"}},
		"only the current":      {`{"a":{}}`, `{"a":{"b":{"c":1}}}`, []string{".a.b"}},
		"null or nothing":       {`{"a":null}`, `{}`, []string{".a"}},
		"empty or nothing":      {`{"a":{}}`, `{}`, []string{".a"}},
		"another type":          {`{"a":{"b":1},"c":[1],"d":1}`, `{"a":1,"c":{"x":1},"d":"1"}`, []string{".a", ".c", ".d"}},
		"in a list":             {`{"a":[1,{"b":2,"c":3}]}`, `{"a":[1,{"b":4,"c":3}]}`, []string{".a[1].b"}},
		"another length":        {`{"a":[1,2]}`, `{"a":[1,3,4]}`, []string{".a"}},
		"another order":         {`{"a":[1,2]}`, `{"a":[2,1]}`, []string{".a[0]", ".a[1]"}},
		"keys of many signs":    {`{"a":{"x.y/z":1,"":1,"ö-_9":1}}`, `{"a":{"x.y/z":2,"":2,"ö-_9":2}}`, []string{`.a[""]`, `.a["x.y/z"]`, `.a.ö-_9`}},
		"large numbers":         {`{"a":9007199254740993}`, `{"a":9007199254740992}`, []string{".a"}},
		"the spec is no object": {`"x"`, `{"a":1}`, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := func(name, spec string) []byte {
				return fmt.Appendf(
					nil,
					`{"kind":"XTemplate","metadata":{"name":%q},"spec":{"other":%[2]s,"template":{"metadata":%[2]s,"spec":%[2]s}}}`,
					name,
					spec,
				)
			}
			all, err := diffTemplates(template("before", c.former), template("after", c.current), hooksv1.Patch{})
			require.NoError(t, err)
			var got []string
			for _, d := range all {
				assert.Equal(t, "XTemplate", d.kind)
				got = append(got, strings.TrimPrefix(d.path, "spec.template.spec"))
			}
			assert.Equal(t, c.want, got)
		})
	}
	for _, one := range [][2]string{{`{"kind":"XTemplate"}`, `{"kind":"XTemplate","spec":{"template":{"spec":{}}}}`}, {`{"kind":"XTemplate","spec":{"template":{"spec":{}}}}`, `{"kind":"XTemplate"}`}} {
		all, err := diffTemplates([]byte(one[0]), []byte(one[1]), hooksv1.Patch{})
		require.NoError(t, err)
		assert.Equal(t, []difference{{"XTemplate", "spec.template.spec"}}, all)
	}
	all, err := diffTemplates(
		[]byte(`{"kind":"XTemplate"}`),
		[]byte(`{"kind":"XTemplate","spec":{"template":{}}}`),
		hooksv1.Patch{},
	)
	require.NoError(t, err)
	assert.Empty(t, all, "neither has a spec")
	_, err = diffTemplates(
		[]byte(`{"kind":"XTemplate"}`),
		[]byte(`{"kind":"XTemplate","spec":"`+secretText+`"}`),
		hooksv1.Patch{},
	)
	require.EqualError(t, err, "spec or spec.template is no object")
}

func TestCanUpdateSaysWhatDiffers(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return "spec." + strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		left []difference
		want string
	}{
		"one":                   {[]difference{{"A", "p"}}, "A differs in p"},
		"three of one":          {[]difference{{"A", "p"}, {"A", "q"}, {"A", "r"}}, "A differs in p, q, r"},
		"three of three":        {[]difference{{"A", "p"}, {"B", "q"}, {"C", "r"}}, "A differs in p; B differs in q; C differs in r"},
		"four":                  {[]difference{{"A", "p"}, {"A", "q"}, {"B", "r"}, {"B", "s"}}, "A differs in p, q; B differs in r and 1 more"},
		"two long ones fit":     {[]difference{{"A", long(120)}, {"A", long(120)}, {"A", long(120)}}, "A differs in " + long(120) + ", " + long(120) + " and 1 more"},
		"one long one fits":     {[]difference{{"A", long(200)}, {"A", long(200)}}, "A differs in " + long(200) + " and 1 more"},
		"one that does not fit": {[]difference{{"A", long(300)}, {"B", "p"}}, "A differs in " + long(300) + " and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, differencesText(c.left))
			assert.LessOrEqual(t, len(negativeAnswer(differencesText(c.left)).Why), maxAnswerMessageBytes)
		})
	}
}
