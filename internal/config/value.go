package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/cluster"

	"go.yaml.in/yaml/v3"
)

// fromText parses a value from an environment variable or a flag.
func fromText(k kind, s string) (any, error) {
	switch k {
	case text:
		return s, nil
	case integer:
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not an integer (32 bits)", s)
		}
		return int(n), nil
	case number:
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, fmt.Errorf("%q is not a number, as in 1.5", s)
		}
		return n, nil
	case boolean:
		if s != "true" && s != "false" {
			return nil, fmt.Errorf("%q is neither true nor false", s)
		}
		return s == "true", nil
	case duration:
		d, err := time.ParseDuration(s)
		if _, bare := strconv.ParseFloat(s, 64); err != nil && bare == nil {
			return nil, fmt.Errorf("%q is not a duration: write a unit, as in %ss", s, s)
		}
		if err != nil || d < 0 {
			return nil, fmt.Errorf("%q is not a duration, as in 500ms, 6s or 1m30s", s)
		}
		return d, nil
	case list:
		if s == "" {
			return []string{}, nil
		}
		return strings.Split(s, ","), nil
	case choices, levels:
		if s == "" {
			return map[kind]any{choices: []cluster.Strategy{}, levels: []FencingLevel{}}[k], nil
		}
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(s), &doc); err != nil || len(doc.Content) != 1 {
			return nil, fmt.Errorf("%q is not a list in YAML", s)
		}
		return fromNode(k, doc.Content[0])
	}
	var pairs [][2]string
	for item := range strings.SplitSeq(s, ",") {
		if item == "" {
			continue
		}
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not key=value", item)
		}
		pairs = append(pairs, [2]string{key, value})
	}
	return fromPairs(k, pairs)
}

// fromPairs returns a map of the type for k. Viper does not change the keys of maps that have a concrete type.
func fromPairs(k kind, pairs [][2]string) (any, error) {
	words, numbers := make(map[string]string), make(map[string]int)
	for _, p := range pairs {
		if _, twice := words[p[0]]; twice {
			return nil, fmt.Errorf("%q is given twice", p[0])
		}
		words[p[0]] = p[1]
		if k != integers {
			continue
		}
		n, err := fromText(integer, p[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p[0], err)
		}
		numbers[p[0]] = n.(int)
	}
	if k == integers {
		return numbers, nil
	}
	return words, nil
}
