from minilm_search.cli import main

main()
