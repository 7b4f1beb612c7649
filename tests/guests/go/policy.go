// A policy that goes wrong in the way that its setting `how` says: what its author is then told is
// what the tests look at.
package main

import (
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"slices"
	"strings"
	"time"

	"allot"
)

type settings struct {
	How string `default:"fine" summary:"What to do in decide."`
	Few uint32 `default:"4" minimum:"2" maximum:"64" summary:"A number with bounds."`
}

var policy = allot.Policy[settings, allot.None]{
	Name:    "faults",
	Version: "0.1.0",
	Summary: "goes wrong in the way that is asked for",
	Begin:   begin,
	Decide:  decide,
}

const ways = "fine panic index nil loop grow recurse exit print flood wait clock give-up needless"

func begin(set settings, _ *allot.Run) (allot.None, error) {
	if !slices.Contains(strings.Fields(ways), set.How) {
		return allot.None{}, allot.BadSetting("how", "there is no way `"+set.How+"`")
	}
	return allot.None{}, nil
}

var (
	nothing []int
	nowhere map[string]int
	kept    [][]byte
)

func deeper(n int) int { return deeper(n+1) + n }

func goWrong(how string) {
	switch how {
	case "panic":
		panic("this went wrong")
	case "index":
		nothing[7]++
	case "nil":
		nowhere["key"] = 1
	case "loop":
		for nowhere == nil {
		}
	case "grow":
		for {
			kept = append(kept, make([]byte, 1<<20))
		}
	case "recurse":
		deeper(0)
	case "exit":
		os.Exit(3)
	case "print":
		fmt.Println("hello from fmt")
		println("hello from println")
		log.Print("hello from log")
	case "flood":
		fmt.Println(strings.Repeat("words and words ", 10_000))
		panic("said too much")
	case "wait":
		time.Sleep(time.Hour)
		done := make(chan bool)
		go func() { done <- true }()
		<-done
	}
}

// What a policy might find out about the world: the same in each call.
func world(plan allot.Plan) allot.Plan {
	_, err := os.Open("/etc/hostname")
	failed := 0.0
	if err != nil {
		failed = 1
		allot.Info(err.Error())
	}
	return plan.Metric("now", float64(time.Now().Unix())).
		Metric("chance", rand.Float64()).
		Metric("home", float64(len(os.Getenv("HOME")))).
		Metric("arguments", float64(len(os.Args))).
		Metric("no-file", failed)
}

func decide(set settings, run *allot.Run, _ *allot.None, view *allot.View) (allot.Plan, error) {
	goWrong(set.How)
	if set.How == "give-up" {
		return allot.Plan{}, errors.New("the data set is not for this policy")
	}
	plan := allot.Train()
	if view.Round == 0 && view.CanSample() {
		var requests []allot.Request
		for _, prompt := range view.Offer(run.Groups) {
			requests = append(requests, allot.Request{Prompt: prompt.Id, Count: run.Rollouts})
		}
		if set.How == "needless" {
			requests[0].Until = allot.Until(1, 1, 2)
		}
		plan = allot.Sample(requests...)
	}
	if set.How == "clock" {
		plan = world(plan)
	}
	return plan, nil
}

func init() { allot.Export(policy) }

func main() {}
