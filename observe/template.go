package observe

import (
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"

	"millwright/api/v1alpha1"
)

// SameTemplate reports whether two templates make the same machines. As in MCM it ignores what changes live machines in
// place and never rolls them: the hash label, the node template, the timeouts and other configuration, and the class's
// kind.
func SameTemplate(a, b *v1alpha1.MachineTemplateSpec) bool {
	return equality.Semantic.DeepEqual(rolling(a), rolling(b))
}

// rolling returns the part of a template whose change rolls machines.
func rolling(t *v1alpha1.MachineTemplateSpec) *v1alpha1.MachineTemplateSpec {
	c := t.DeepCopy()
	delete(c.Labels, v1alpha1.LabelMachineTemplateHash)
	c.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{}
	c.Spec.MachineConfiguration = nil
	c.Spec.Class.Kind = ""
	c.CreationTimestamp.Reset()
	return c
}

// TemplateHash returns the label value that tells sets of one deployment apart, in the form that MCM uses: the decimal of
// a 32-bit FNV hash over the whole template and, once a name was taken, the collision count.
func TemplateHash(t *v1alpha1.MachineTemplateSpec, collisions *int32) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	_, _ = h.Write(text) // never fails
	if collisions != nil {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(*collisions)))
	}
	return strconv.FormatUint(uint64(h.Sum32()), 10), nil
}

// SetName returns the name of a deployment's set with this template hash: the deployment's name and the first five
// characters of the hash in an alphabet without vowels, as in MCM.
func SetName(deployment, hash string) string {
	encoded := rand.SafeEncodeString(hash)
	return deployment + "-" + encoded[:min(5, len(encoded))]
}
