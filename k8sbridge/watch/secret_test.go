package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

type aSecretsMetadata = *metav1.PartialObjectMetadata

// secretNamed returns a Secret without our finalizer.
func secretNamed(name string) aSecretsMetadata {
	s := changed(aSecret(), bare[aSecretsMetadata])
	s.Name, s.UID = name, types.UID("uid-"+name)
	return s
}

func secretNamedGuarded(name string) aSecretsMetadata {
	s := secretNamed(name)
	s.Finalizers = []string{v1alpha1.FinalizerSecret}
	return s
}

func TestSecretFingerprints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(aSecretsMetadata)
		want   []string
	}{
		{"what is in it", func(aSecretsMetadata) {}, []string{"spec"}}, // only its version changes
		{"finalizer", bare[aSecretsMetadata], []string{"spec", "parentDebounced"}},
		{"a foreign finalizer", func(s aSecretsMetadata) { s.Finalizers = append(s.Finalizers, "foreign") }, []string{"spec"}},
		{"deletion", toBeDeleted[aSecretsMetadata], []string{"spec", "parentDebounced"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			next := changed(aSecret(), row.change)
			next.ResourceVersion = "8"
			assert.Equal(t, row.want, which(secretFingerprints(aSecret()), secretFingerprints(next)))
		})
	}
}

func TestASecretAndItsClasses(t *testing.T) {
	t.Run("one that only credentialsSecretRef names wakes its class and who waits for it", func(t *testing.T) {
		waiting := changed(machineNamed("waiting"), uncreated)
		inWorld(t, []runtime.Object{changed(aClass(), refersTo("other")), waiting}, func(w *world) {
			w.took()
			version := w.put(secretNamed("other"))
			w.flush()
			calls := map[string]call{}
			for _, c := range w.took() {
				calls[c.id] = c
			}
			assert.Contains(t, calls, idOf(waiting))
			require.Contains(t, calls, idOf(aClass()))
			assert.Equal(t, version, calls[idOf(aClass())].changed.Versions[cache.Secrets])
			assert.NotContains(t, calls[idOf(waiting)].changed.Versions, cache.Secrets, "machines read Secrets live")
		})
	})
	t.Run("one that is missing wakes nobody, and the class when it appears", func(t *testing.T) {
		inWorld(t, []runtime.Object{aClass(), aMachine(), aNode()}, func(w *world) {
			w.pass(aResync)
			assert.Empty(t, w.asked())
			w.put(secretNamed("credentials"))
			w.flush()
			assert.Equal(t, []string{awake(aClass())}, w.asked())
		})
	})
	t.Run("one in another namespace is left alone", func(t *testing.T) {
		elsewhere := secretNamed("credentials")
		elsewhere.Namespace = "keys"
		class := changed(aClass(), func(c *v1alpha1.MachineClass) { c.SecretRef.Namespace = "keys" })
		inWorld(t, []runtime.Object{class}, func(w *world) {
			w.put(elsewhere)
			w.pass(aResync)
			assert.Empty(t, w.asked())
		})
	})
	t.Run("one in another namespace that allows its use wakes who waits for it", func(t *testing.T) {
		elsewhere := secretNamed("credentials")
		elsewhere.Namespace = "keys"
		class := changed(aClass(), func(c *v1alpha1.MachineClass) { c.SecretRef.Namespace = "keys" })
		waiting := changed(machineNamed("waiting"), uncreated)
		inWorld(t, []runtime.Object{class, elsewhere, waiting}, func(w *world) {
			w.took()
			elsewhere.Annotations = map[string]string{v1alpha1.AnnotationAllowedClassNamespaces: "ns"}
			w.put(elsewhere)
			w.flush()
			assert.Equal(t, []string{awake(waiting)}, w.asked())
		})
	})
	t.Run("one that changes is no news to a class that waits", func(t *testing.T) {
		inWorld(t, append(calmStack(), goingClass()), func(w *world) {
			w.pass(time.Second)
			w.took()
			w.put(aSecret())
			w.pass(2 * time.Second)
			assert.Empty(t, w.asked())
		})
	})
	t.Run("one that goes with its class starts no run for what is gone", func(t *testing.T) {
		inWorld(t, append(calmStack(), goingClass()), func(w *world) {
			w.remove(aMachine())
			w.pass(5 * time.Second)
			w.took()
			// now its workflow removes the finalizers of the Secret and the class
			w.put(changed(aSecret(), toBeDeleted[aSecretsMetadata]))
			w.remove(aSecret())
			w.remove(goingClass())
			w.pass(2 * time.Second)
			assert.NotContains(t, w.asked(), awake(aClass()))
		})
	})
}
