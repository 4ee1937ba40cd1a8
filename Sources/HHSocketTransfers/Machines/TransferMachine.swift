// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues
import NIOCore

/// The decisions about a transfer: the events that puts and gets have in common.
protocol TransferMachine: Sendable {
    associatedtype Action: Sendable

    var nextDeadline: NIODeadline? { get }
    var bytesMoved: UInt64 { get }
    mutating func start() -> [Action]
    mutating func opened(now: NIODeadline)
    mutating func streamEnded(_ error: SocketError?, now: NIODeadline) -> [Action]
    mutating func timePassed(now: NIODeadline) -> [Action]
    mutating func connectionChanged(now: NIODeadline) -> [Action]
    mutating func clientGaveUp(_ error: SocketError) -> [Action]
    mutating func failed(_ error: TransferError) -> [Action]
}
