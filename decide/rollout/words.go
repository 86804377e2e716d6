package rollout

import "fmt"

func phrase(format string, values ...any) string { return fmt.Sprintf(format, values...) }

// machines counts them in words.
func machines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
