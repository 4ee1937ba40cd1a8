// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransfers
import TestSupport
import Testing

#if canImport(SwiftUI)
import SwiftUI
#endif

#if canImport(SwiftUI)
struct UploadRow: View {
    let transfer: Transfer
    @State private var progress = TransferProgress()

    var body: some View {
        ProgressView(value: Double(self.progress.completed), total: Double(max(1, self.progress.total)))
            .task {
                for await progress in self.transfer.progressUpdates { self.progress = progress }
            }
    }
}
#endif

private struct NoSuchMap: Error {}

/// Puts what is not put yet. To be called at each start, and when the app comes to the foreground.
func resumeUploads(of photos: [String], with transfers: TransferClient) async {
    for photo in photos {
        do throws(TransferError) {
            let done = try await transfers.put(photo).value
            print("\(photo) is stored as \(done.id)")
        } catch  where error.code == .stalled || error.code == .cancelled {
            // The server keeps what has come, for days; the next call goes on there.
            return
        } catch {
            print("\(photo) cannot be stored: \(error)")
        }
    }
}

/// The examples of the client's part of `Transfers.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferClientGuideTests {
    @Test func everyExampleOfThePartIsInThisFile() throws {
        let part = try DocumentationPage(guide: "Transfers", section: "Transfers of an app")
        #expect(try part.shortcomings() == [])
    }

    /// Runs `body` with the parts of a house that the examples use, and a photograph.
    private func withPhoto(_ body: (TransferHouse, TransferClient, String, String) async throws -> Void) async throws {
        try await TransferHouse.with { house in
            let (photo, _) = try house.file("photo", 300_000)
            try await body(house, house.transfers, photo, house.folder.file("copy"))
        }
    }

    @Test func client() async throws {
        try await self.withPhoto { house, _, photo, _ in
            var configuration = SocketClient.Configuration(servers: [house.link.endpoint])

            configuration.streams = StreamPolicy()
            let client = SocketClient(configuration: configuration)
            let transfers = TransferClient(client)
            // The transfer connects the client by itself.
            let put = try await transfers.put(photo).value
            #expect(put.file.size == 300_000)
            await client.close()
        }
    }

    @Test func puttingAndGetting() async throws {
        try await self.withPhoto { house, transfers, photo, copy in
            let put = try await transfers.put(photo).value
            print("it is \(put.id) now, of \(put.file.size) bytes")

            let got = try await transfers.get(put.id, to: copy).value
            print("\(got.bytesMoved) bytes came")
            #expect(try TransferHouse.describe(copy) == put.file)
        }
    }

    @Test func ids() async throws {
        try await self.withPhoto { house, transfers, photo, copy in
            guard let map = TransferID("map-2026.pack") else { throw NoSuchMap() }
            let stored = try await transfers.put(photo, id: map).value
            let known = try await transfers.find(map)
            let bytes = try await transfers.data(map, maximumSize: 1 << 20)
            #expect(stored.file == known.file && known.file.size == 300_000 && bytes.readableBytes == 300_000)

            let hasEnded = Gate()
            transfers.get(map, to: copy) { result in
                switch result {
                case .success(let done): print("\(done.bytesMoved) bytes came")
                case .failure(let error): print("\(error.code): \(error.message)")
                }
            }
            transfers.get(map, to: house.folder.file("other")) { _ in hasEnded.open() }
            try await hasEnded.wait()
            try await eventually("the copy") { (try? TransferHouse.describe(copy)) == known.file }
        }
    }

    @Test func progress() async throws {
        try await self.withPhoto { house, transfers, photo, copy in
            let upload = transfers.put(photo)
            for await progress in upload.progressUpdates {
                print("\(progress.completed) of \(progress.total)")
            }
            let result = try await upload.value
            #expect(result.file.size == 300_000)
        }
    }

    @Test func mobileNetworks() async throws {
        try await self.withPhoto { house, _, photo, _ in
            let client = house.client
            var options = TransferClient.Options()
            options.timeout = .seconds(600)
            let patient = TransferClient(client, options: options)
            let put = try await patient.put(photo).value
            #expect(put.file.size == 300_000)
        }
    }

    @Test func background() async throws {
        try await self.withPhoto { house, transfers, photo, _ in
            await resumeUploads(of: [house.folder.file("missing"), photo], with: transfers)
            let names = try house.visible()
            #expect(names.count == 1)
        }
    }

    @Test func cancelling() async throws {
        try await self.withPhoto { house, transfers, photo, copy in
            let map = id("map")
            let transfer = transfers.get(map, to: copy)
            transfer.cancel()

            let unwanted = transfers.put(photo, id: map)
            unwanted.cancel(discarding: true)
            _ = try? await transfer.value
            #expect(transfer.result != nil)
            _ = try? await unwanted.value
            let hidden = try house.hidden()
            #expect(hidden == [])
        }
    }
}
