// SPDX-License-Identifier: Apache-2.0
/// Counts of events that no single call reports, from the client's beginning.
public struct ClientStatistics: Sendable, Hashable {
    /// Answers to calls that had timed out or been cancelled; dropped.
    public var lateResponses = 0
    /// Further answers to calls that had been answered; dropped.
    public var duplicateResponses = 0
    /// Answers to serials that were never sent; dropped.
    public var unknownResponses = 0
    /// Frames with a wrong checksum.
    public var checksumFailures = 0
    /// Times that bytes were no frame, in formats whose frames end with separators.
    public var malformedFrames = 0
    /// Go-away frames received. After the first on a connection they have no effect.
    public var goAways = 0
    /// Go-away frames that could not be parsed; the client failed over all the same.
    public var malformedGoAways = 0
    /// The number of times that a call was sent again because a server answered that it is about to end (504).
    public var resentCalls = 0
    /// Streams opened, each time that one is opened again included.
    public var openedStreams = 0
    /// Items of streams that were handed over to be sent.
    public var sentItems = 0
    /// The number of received items of streams.
    public var receivedItems = 0
    /// Pushes received.
    public var pushes = 0
    /// Pushes that a slow subscriber lost by its ``PushBufferingPolicy``, counted once for each subscriber. Pushes that
    /// still wait when a subscription ends are not counted.
    public var droppedPushes = 0
    /// The number of times that a handler of pushes threw an error.
    public var failedPushHandlers = 0
    /// The number of pushes that were omitted from a sequence of messages because they could not be decoded, or that
    /// were dropped because their envelope could not be opened.
    public var malformedPushes = 0
}
