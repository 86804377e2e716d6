package seeds

// Faults of the way from workers or bridges to the API server. On is the identity.
const (
	faultAway  = "api-away"         // 503 for everything, and watches break
	faultStorm = "api-storm"        // 429, conflicts, and writes whose answer is lost
	faultSlow  = "api-slow-watches" // watches tell everything late, and break
)
