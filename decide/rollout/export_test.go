package rollout

// MaxSentence bounds the resizes that Decision.Why names, in bytes.
const MaxSentence = maxSentenceBytes
