package rollout

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
)

// poolWithHistory returns a deployment whose revision 6 was formerly revision 3 and revision 4, and whose present
// revision has a change cause.
func poolWithHistory() *pool {
	p := completedPool(withAnnotation(v1alpha1.AnnotationChangeCause, "image v2,\nsays ann"))
	p.sets[1].Annotations[v1alpha1.AnnotationRevisionHistory] = "3,4"
	return p
}

func TestHistoryListsAllRevisions(t *testing.T) {
	out, err := poolWithHistory().runCommand(t, "history", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
REVISION   FORMERLY   SET     CREATED        REPLICAS   CLASS   CURRENT   CHANGE-CAUSE
5          -          web-0   11:51:07 UTC   0          tiny    -         -
6          3,4        web-a   12:51:07 UTC   0          small   -         -
7          -          web-b   13:51:07 UTC   3          large   yes       image v2, says ann
`, "\n"), out)
	back, err := rolledBackPool().runCommand(t, "history", "shop/web")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)7 +- +web-b .*8 +- +web-a `, back, "by revision, not by age")
	none, err := webPool().runCommand(t, "history", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, "deployment shop/web has no revision yet\n", none)
}

func TestHistoryOfOneRevision(t *testing.T) {
	const template = `metadata:
  labels:
    app: web
spec:
  class:
    kind: MachineClass
    name: small
`
	out, err := poolWithHistory().runCommand(t, "history", "shop/web", "--revision=6")
	require.NoError(t, err)
	assert.Equal(t, "# revision 6 of shop/web: set web-a\n"+template, out, "without the label that distinguishes sets")
	out, err = poolWithHistory().runCommand(t, "history", "shop/web", "--revision=3")
	require.NoError(t, err)
	assert.Equal(t, "# revision 3 of shop/web, which is revision 6 now: set web-a\n"+template, out)
	for _, missing := range []string{"9", "0", "-1"} {
		_, err = poolWithHistory().runCommand(t, "history", "shop/web", "--revision="+missing)
		require.EqualError(t, err, "deployment shop/web has no revision "+missing+": it has 5, 6, 7")
	}
	_, err = webPool().runCommand(t, "history", "shop/web", "--revision=1")
	require.EqualError(t, err, "deployment shop/web has no revision 1: it has none yet")
}

func TestHistoryOfASetWithoutARevision(t *testing.T) {
	p := completedPool()
	delete(p.sets[0].Annotations, v1alpha1.AnnotationRevision)
	out, err := p.runCommand(t, "history", "shop/web")
	require.NoError(t, err)
	assert.Contains(t, out, "\n-          -          web-0 ")
	_, err = p.runCommand(t, "history", "shop/web", "--revision=0")
	require.EqualError(t, err, "deployment shop/web has no revision 0: it has 6, 7")
}
