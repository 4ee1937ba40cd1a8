// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer

// `Common_Shelf` is available without an import of Common, because the .proto imports its file publicly.
struct Seller: Sales_SalesRPC.ServiceProtocol {
    func sell(_ request: Common_Shelf, context: ServerContext) async throws -> Sales_Sale {
        Sales_Sale.with { $0.shelf = request }
    }

    func walk(
        _ requests: RequestMessages<Common_Shelf>,
        to responses: MessageWriter<Common_Shelf>,
        context: ServerContext
    ) async throws {
        for try await shelf in requests { try await responses.send(shelf) }
    }
}

func sell(_ client: SocketClient) async throws -> Common_Shelf {
    try await Sales_SalesRPC.Client(client).sell(Common_Shelf.with { $0.row = 7 }).shelf
}
