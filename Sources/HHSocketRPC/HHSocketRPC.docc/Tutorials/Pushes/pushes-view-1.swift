import SwiftUI

struct NewsView: View {
    let model: NewsModel

    var body: some View {
        List(self.model.headlines, id: \.self) { headline in
            Text(headline)
        }
        .task { await self.model.follow() }
    }
}
