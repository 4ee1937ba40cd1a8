// SPDX-License-Identifier: Apache-2.0

/// A place where a server keeps bytes that clients have sent. `PinnedSliceTests` attacks each, and
/// `KeptBytesSourceTests` compares them with the stored properties of the sources.
package enum Keeper: String, CaseIterable, Sendable {
    /// Requests whose handler does not return.
    case requests
    /// Payloads in pieces, of which one piece has come.
    case pieces
    /// Payloads in pieces, of which two have come: the second fits where the first one's buffer has room.
    case secondPieces
    /// Answers that wait for an earlier one.
    case answersInOrder
    /// Answers that the client does not read.
    case unreadAnswers
    /// Items of streams whose handler takes none.
    case items
    /// Pieces of such an item.
    case unfinishedItems
    /// Items that handlers have sent, for which the client gives no credit: parts of those that it has sent.
    case itemsWithoutCredit
    /// Messages of WebSockets that wait in their read, since their handlers take none.
    case messages
    /// Pushes that wait for a client that does not read: another client's requests, passed on.
    case heldPushes
    /// Answers that are kept for repeats: parts of the requests.
    case keptAnswers

    /// The stored properties that keep the bytes, after the names of their files.
    package var properties: [String] {
        switch self {
        case .requests: ["RequestGate.frame", "ServerRequest.body", "BodyInflater.input"]
        case .pieces, .secondPieces, .unfinishedItems: ["PieceAssembly.bytes"]
        case .answersInOrder: ["AnswerWriter.order", "CompletionQueue.answer"]
        case .unreadAnswers: ["SendBytes.body", "SendBytes.others", "StreamLane.bytes"]
        case .items: ["StreamOutcome.payload", "StreamPort.payload"]
        case .itemsWithoutCredit: ["StreamLane.bytes", "StreamPort.payload"]
        case .messages: ["WebSocketMessage.payload"]
        case .heldPushes: ["PushQueue.bytes"]
        case .keptAnswers: ["KeptAnswer.body"]
        }
    }
}
