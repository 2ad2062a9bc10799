// Package transfer copies all that one store holds into another, whatever their engines, and proves that it arrived.
//
// It owns what is copied and what is not: which rows say who holds a store and therefore stay behind, the sums by which two
// stores are compared, and the order of the steps, so that a copy that was interrupted is never taken for a store. Which
// tables there are it asks the databases themselves, so that none can be forgotten.
//
// It must not know an engine: each fills [Source] and [Target]. It imports crash and store/schema only.
package transfer
